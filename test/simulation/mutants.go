package simulation

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tenure-ipam/tenure/test/simulation/mutant"
)

// A mutation is a deliberate fault as a change to the text of a file of the product: the code
// that ships has no hook for it. All mutations are built into one program, in which
// [mutant.On] says which counts.
type mutation struct {
	file     string // from the repository's root
	old, new string // old stands there once
}

// mutants are the faults that are changes to the product's text.
var mutants = map[Fault][]mutation{
	"M1": {step},
	"M2": memory,
	"M6": {{"ipam/node/agent/losses.go", `		all = append(all, protocol.FrozenLease(l))
`, `		r := protocol.FrozenLease(l)
		if mutant.On == "M6" {
			r.Phase = protocol.Releasing
		}
		all = append(all, r)
`}},
	"M7": {{"ipam/node/store/right.go", "return known.right.Usable(term), nil", `return known.right.Usable(term) || mutant.On == "M7" && known.right.Phase == protocol.Frozen, nil`}},
	"M10": append([]mutation{{"ipam/node/agent/blocks_cede.go", `if err := space.Bar(x, true); err != nil {
			return nil, err`, `if err := space.Bar(x, mutant.On != "M10"); err != nil {
			return nil, err`}}, memory...),
	"M12": {step, {"ipam/node/agent/blocks_takeback.go", "!slices.Contains(r.Grants, x) {", `(mutant.On == "M12" || !slices.Contains(r.Grants, x)) {`}},
	"M19": {{"ipam/node/agent/registration.go", "had := reg.registrar.Term\n", `had := reg.registrar.Term
		if mutant.On == "M19" && res.Accepted {
			res.Next.Sent = ev.Now
		}
`}},
	"M22": {{"claims/reconciler.go", "	patch, err := st.patch(c)\n", `	if mutant.On == "M22" && len(c.ips) == 0 && len(st.ips) > 0 {
		others := slices.DeleteFunc(r.Broker.Held(c.uid), func(h grants.Held) bool {
			return slices.ContainsFunc(st.ips, func(ip string) bool { return strings.HasPrefix(ip, h.Grant.Addr.String()+"/") })
		})
		if len(others) > 0 {
			if marked, err := r.Broker.Mark(ctx, others); err == nil {
				_ = r.Broker.Clear(ctx, marked)
			}
		}
	}
	patch, err := st.patch(c)
`}},
	"M26": {{"ipam/node/agent/rights_confirm.go", `if err := rs.pools.rightUnderRestore(r); err != nil {
		return ev, err // its`, `if mutant.On == "M26" {
		ev.Outcome = protocol.Done
		return ev, nil
	}
	if err := rs.pools.rightUnderRestore(r); err != nil {
		return ev, err // its`}},
	"M28": unusedMutants,
	"M30": {{"ipam/node/agent/attachments_journal.go", "entries, damaged, err := delqueue.OfKey(", `if mutant.On == "M30" {
		return nil
	}
	entries, damaged, err := delqueue.OfKey(`}},
	"M32": {
		{"ipam/node/agent/attachments.go", "return as.host.Gone(att) && ", `return (mutant.On == "M32" || as.host.Gone(att)) && `},
		{"ipam/node/agent/attachments.go", "out == protocol.Done && !pod.Is(att.Pod.UID)", `out == protocol.Done && (mutant.On == "M32" && pod.UID != att.Pod.UID || !pod.Is(att.Pod.UID))`},
	},
	"M33": {{"ipam/node/agent/rights_confirm.go", `out, why := protocol.Confirmation(r, p, read)
`, `out, why := protocol.Confirmation(r, p, read)
	if mutant.On == "M33" {
		return protocol.Done, nil
	}
`}},
	"M34": {
		{"ipam/node/agent/rights_calls.go", "	return protocol.Right{Kind: protocol.RightLease, Name: protocol.LeaseName(name, block), LeaseRight", `	if mutant.On == "M34" {
		return protocol.Right{Kind: protocol.RightLease, Name: protocol.LeaseName(name, block) + "." + string(rune('0'+p.Generation)), LeaseRight: protocol.LeaseRight{Pool: name, PoolUID: p.UID, Block: block}}
	}
	return protocol.Right{Kind: protocol.RightLease, Name: protocol.LeaseName(name, block), LeaseRight`},
		{"ipam/node/store/right.go", `	payload, err := tx.get(&tx.rights, []byte(name))
	if err != nil || payload == nil { // one`, `	if mutant.On == "M34" {
		for r, err := range tx.Rights() {
			if err != nil || len(r.Name) > len(name) && r.Name[:len(name)+1] == name+"." && r.Usable(term) {
				return true, err
			}
		}
	}
	payload, err := tx.get(&tx.rights, []byte(name))
	if err != nil || payload == nil { // one`},
	},
	"M35": {
		{"ipam/node/agent/blocks_reserve.go", "size, known.Pressure)", `size, func() allocator.Pressure {
			if mutant.On == "M35" {
				return allocator.PressureLow
			}
			return known.Pressure
		}())`},
		{"ipam/node/agent/pools.go", "	return absent || known != nil && (known.Pressure", `	return mutant.On != "M35" && absent || mutant.On != "M35" && known != nil && (known.Pressure`},
	},
	"M36": {{"ipam/controller/grants/round.go", "	reg.Recalls = next\n", `	if reg.Recalls = next; mutant.On == "M36" && node != "n0" {
		reg.Recalls = nil
	}
`}},
	"M40": {step, {"ipam/node/agent/registration_history.go", "	case !behind:\n", `	case !behind || mutant.On == "M40":
`}},
	"M41": {{"allocator/space.go", "		b.free(off, h.seq)\n", `		b.free(off, h.seq)
		if mutant.On == "M41" {
			b.set(mapBarred, off)
		}
`}},
	"M42": {{"ipam/node/agent/attachments.go", "	all, err := as.allAttachments()\n", `	all, err := as.allAttachments()
	if mutant.On == "M42" {
		return
	}
`}},
	"M45": {{"ipam/protocol/right.go", "func (r Right) Usable(term int64) bool { return", `func (r Right) Usable(term int64) bool { return mutant.On == "M45" && r.Phase == Held && r.Term != 0 ||`}},
	"M46": {{"ipam/controller/pools/plan.go", "		// No lease stands against the change, or a family is new: close,", `		if mutant.On == "M46" {
			st.BlockPrefixLengths = want.status()
			return s.open(st, want, want)
		}
		// No lease stands against the change, or a family is new: close,`}},
	"M47": {{"ipam/node/agent/rights_confirm.go", "		e.Other = &other\n", `		if e.Other = &other; mutant.On == "M47" && other.Use != nil && other.Use.Pod.Owner.UID == e.Own.Pod.Owner.UID {
			e.Other = nil
		}
`}},
	"M48": {{"ipam/node/agent/losses.go", "i < 0 || reg.Former[i].Machine", `i < 0 || mutant.On != "M48" && reg.Former[i].Machine`}},
	"M49": append([]mutation{{"ipam/node/agent/losses.go", `	if l.Boot != ls.cfg.Boot {
		return "", nil
`, `	if l.Boot != ls.cfg.Boot || mutant.On == "M49" {
		return "", nil
`}}, unusedMutants...),
	"M52": memory,
	"M54": {{"ipam/controller/pools/overlap.go", "		case pools[i].Spec.Domain != l.pool", `		case mutant.On == "M54" || pools[i].Spec.Domain != l.pool`}},
	"M55": {{"ipam/kube/read.go", "Edited: err != nil || o.Status.ObservedGeneration > 0 &&", `Edited: mutant.On != "M55" && err != nil || mutant.On != "M55" && o.Status.ObservedGeneration > 0 &&`}},
	"M57": {{"ipam/node/agent/serve.go", "&& a.host.Gone(att) {\n				garbage", `&& (mutant.On == "M57" || a.host.Gone(att)) {
				garbage`}},
	"M58": {{"ipam/controller/looker/looker.go", "	return l.verdicts[pool]\n", `	v := l.verdicts[pool]
	if mutant.On == "M58" {
		v.Stage, v.Why = foreign.StageClear, ""
	}
	return v
`}},
	"M62": {{"ipam/controller/pools/reconciler.go", "	}{status, status.Withheld,", `	}{status, func() []string {
			if mutant.On == "M62" {
				return nil
			}
			return status.Withheld
		}(),`}},
	"M64": {{"ipam/node/sched/locks.go", "	close(line[0])\n", `	if mutant.On != "M64" || len(line) == 1 {
		close(line[0])
	}
`}},
	"M65": {{"ipam/node/agent/blocks_cede.go", "within == nil && !whole &&", `(within == nil || mutant.On == "M65") && !whole &&`}},
	"M66": {{"ipam/node/agent/pool_nodes.go", "	return &knownPool{Pool: heard,", `	if mutant.On == "M66" {
		return &knownPool{Pool: heard, shape: whole, whole: whole, text: text}, nil
	}
	return &knownPool{Pool: heard,`}},
	"M67": {{"claims/topology.go", "		if p.pool != from.Pool {", `		if p.pool != from.Pool || mutant.On == "M67" {`}},
	"M68": {{"ipam/node/agent/pool_nodes.go", "	same := told == \"\" ||", `	same := told == "" || mutant.On == "M68" && ps.labels != "" ||`}},
	"M69": {{"ipam/node/agent/pool_pernode.go", "err != nil || own.Block.IsValid() || len(", `err != nil || own.Block.IsValid() && mutant.On != "M69" || len(`}},
	"M70": {{"ipam/node/agent/blocks_idle.go", "		if stay[r.Name] {", `		if stay[r.Name] && mutant.On != "M70" {`}},
	"M71": {{"ipam/node/agent/devices.go", "|| sandboxes()(att.Pod.UID) {", `|| mutant.On != "M71" && sandboxes()(att.Pod.UID) {`}},
	"M72": {{"ipam/node/agent/devices.go", "|| !slices.Contains(now.Devices, att.IfName))", `|| mutant.On != "M72" && !slices.Contains(now.Devices, att.IfName))`}},
	"M73": {{"ipam/node/agent/pool_nodes.go", `	if was != nil {
		maps.Copy(heard.Labels, was.Labels.Of(keys))
	}
`, `	if was != nil && was.Labels != nil && mutant.On == "M73" {
		heard.Labels = was.Labels
	} else if was != nil {
		maps.Copy(heard.Labels, was.Labels.Of(keys))
	}
`}},
	"M75": {{"ipam/controller/pools/plan.go", "		st.BlockPrefixLengths = now.without(changing).status()\n", `		st.BlockPrefixLengths = now.without(changing).status()
		if mutant.On == "M75" {
			st.BlockPrefixLengths = want.status()
		}
`}},
	"M74": {{"ipam/controller/pools/plan.go", "	if s.restored != nil && !slices.Contains(waiting", `	if mutant.On != "M74" && s.restored != nil && !slices.Contains(waiting`}},
}

// step has the faults of mutatedStep.
var step = mutation{"ipam/protocol/step.go", `func Step(r Right, self Self, ev Event) Result {
`, `func Step(r Right, self Self, ev Event) Result {
	if res, ok := mutatedStep(&r, self, ev); ok {
		return res
	}
`}

// memory has what a step leads to in memory alone, of M2, M10 and M52.
var memory = []mutation{
	{"ipam/node/agent/rights.go", "	requests  requests\n", `	requests  requests
	inMemory  map[string]protocol.Right
`},
	{"ipam/node/agent/rights.go", "		ev, err := begin(tx, self, was)\n", `		if m, ok := rs.inMemory[fresh.Name]; ok {
			was = m
			delete(rs.inMemory, fresh.Name)
		}
		ev, err := begin(tx, self, was)
`},
	{"ipam/node/agent/rights.go", `		res = protocol.Step(was, self, ev)
		err = rs.record(`, `		res = protocol.Step(was, self, ev)
		if mutant.On == "M2" && ev.Kind == protocol.EventLetGo && was.Phase == protocol.Held || mutant.On == "M10" && ev.Kind == protocol.EventCede || mutant.On == "M52" && !known && res.Call == protocol.CallCreate {
			if rs.inMemory == nil {
				rs.inMemory = map[string]protocol.Right{}
			}
			rs.inMemory[fresh.Name] = res.Next
			return nil
		}
		err = rs.record(`},
}

// unusedMutants let go of what something rests on, of M28 and M49.
var unusedMutants = []mutation{{"ipam/node/agent/rights_record.go", `func inUse(tx *store.Tx, r protocol.Right) (bool, error) {
`, `func inUse(tx *store.Tx, r protocol.Right) (bool, error) {
	if mutant.On == "M28" && r.Kind == protocol.RightUse || mutant.On == "M49" && r.Store != "" && r.Kind != protocol.RightLease {
		return false, nil
	}
`}}

// mutatedStep is a file that the overlay adds to ipam/protocol.
const mutatedStep = `package protocol

import "github.com/tenure-ipam/tenure/test/simulation/mutant"

func mutatedStep(r *Right, self Self, ev Event) (Result, bool) {
	read := ev.Kind == EventAnswer && ev.Call == CallRead
	switch {
	case mutant.On == "M1" && r.Phase == Releasing && r.UID != "" && ev.Kind == EventWant && self.Term != 0:
		return Result{Next: *r, Call: CallRead}, true
	case mutant.On == "M1" && r.Phase == Releasing && read && ev.Outcome == Done &&
		ev.Object.Store == self.Store && ev.Object.Term == self.Term && self.Term != 0:
		r.Phase, r.Term = Held, self.Term
		r.UID, r.Revision = ev.Object.UID, ev.Object.Revision
		return Result{Next: *r, Verdict: VerdictUsable}, true
	case mutant.On == "M12" && ev.Kind == EventTakeBack:
		r.Grants = nil
	case mutant.On == "M40" && r.Phase == Held && read && ev.Outcome == NotFound:
		return Result{Next: *r, Verdict: VerdictUsable}, true
	}
	return Result{}, false
}
`

// WriteOverlay writes, into dir, the files of the repository at root with all mutations, and
// returns the path of what go build's -overlay takes.
func WriteOverlay(root, dir string) (path string, err error) {
	texts := map[string]string{
		"ipam/protocol/mutated.go": mutatedStep,
		"test/simulation/mutant/mutant.go": `package mutant

const Built = true

var On string
`,
	}
	done := map[mutation]bool{}
	for fault, all := range mutants {
		for _, m := range all {
			if done[m] {
				continue
			}
			done[m] = true
			text, ok := texts[m.file]
			if !ok {
				raw, err := os.ReadFile(filepath.Join(root, m.file))
				if err != nil {
					return "", err
				}
				text = string(raw)
			}
			if n := strings.Count(text, m.old); n != 1 {
				return "", fmt.Errorf(`mutant %s: %s has its text %d times, want once:
%s`, fault, m.file, n, m.old)
			}
			if text = strings.Replace(text, m.old, m.new, 1); strings.Contains(m.new, "mutant.On") && !strings.Contains(text, importMutant) {
				text = strings.Replace(text, "import (\n", "import (\n"+importMutant, 1)
			}
			texts[m.file] = text
		}
	}
	replace := map[string]string{}
	for file, text := range texts {
		to := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(root, file)] = to
	}
	raw, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, raw, 0o600)
}

// importMutant is the import of package mutant, among others.
const importMutant = `	"github.com/tenure-ipam/tenure/test/simulation/mutant"
`

// IsMutant reports whether a fault is a mutant, which a program must be built with.
func (f Fault) IsMutant() bool { return mutants[f] != nil }

// SwitchOn has a mutant run. Call it before anything runs.
func SwitchOn(f Fault) error {
	if f.IsMutant() && !mutant.Built {
		return fmt.Errorf("fault %s is a change to the product's text, and this program was built without: make simulate FAULT=%s", f, f)
	}
	mutant.On = string(f)
	return nil
}
