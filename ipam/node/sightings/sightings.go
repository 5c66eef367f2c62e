// Package sightings answers what a node's registration asks: which pods run on the node, and which
// addresses they have, by Tenure and by others.
package sightings

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/ipam/cniresults"
	"github.com/tenure-ipam/tenure/ipam/node/sched"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Host looks at what the host has of pods.
type Host interface {
	// There reports whether a network namespace may be at a path. What cannot be told may.
	There(netns string) bool
	// HostLocal returns what host-local's files of a network say, in its directory for
	// networks or in its default one. Where it has none there is nothing.
	HostLocal(network, dataDir string) ([]HostLocalFile, error)
	// Cached returns what the CNI library has kept of attachments, and for each of
	// its files that does not read why.
	Cached() (entries []cniresults.Entry, unread []*cniresults.FileError, err error)
}

// A HostLocalFile is an address that host-local has given, as its file says.
type HostLocalFile struct {
	Addr      netip.Addr
	Container string
}

// A Reporter answers for one node. Make one with [New]; it is safe for concurrent use.
type Reporter struct {
	st    *store.Store
	host  Host
	sched sched.Scheduler
	log   *slog.Logger
	start func(task func(context.Context))
	ready func()

	arrived lately[arrival]           // the ADDs that have come
	freed   lately[protocol.Sighting] // what attachments had that were freed

	mu sync.Mutex
	// asked is what was asked last, answer what is to be said to it; guarded by mu.
	asked, answer string
	answering     bool // guarded by mu; what is asked is being found out
}

// New returns a Reporter on st. start runs a task beside its caller; ready is called when
// [Reporter.Answer] has something new to say.
func New(st *store.Store, host Host, s sched.Scheduler, log *slog.Logger, start func(task func(context.Context)), ready func()) *Reporter {
	return &Reporter{st: st, host: host, sched: s, log: log, start: start, ready: ready}
}

// arrival is the ADD of a pod for a network.
type arrival struct {
	pod     protocol.UID
	network string
}

// Arrived notes that an ADD of a pod for a network has come.
func (r *Reporter) Arrived(pod protocol.UID, network string) {
	r.arrived.note(arrival{pod, network}, r.sched.Now())
}

// Freed notes that an attachment is about to be freed.
func (r *Reporter) Freed(att store.Attachment) {
	for _, s := range sightingsOf(att) {
		r.freed.note(s, r.sched.Now())
	}
}

// Answer returns the answer to what was asked last, empty while there is none.
func (r *Reporter) Answer() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.answer
}

// Sandboxes reads the CNI library's results, and returns what tells by them whether a sandbox of a
// pod may be there. Where one of them cannot be read, it may.
func (r *Reporter) Sandboxes(ctx context.Context) (has func(pod protocol.UID) bool) {
	cached, unread, err := r.host.Cached()
	if len(unread) > 0 && err == nil {
		err = unread[0]
	}
	if err != nil {
		r.log.WarnContext(ctx, "what devices of ResourceClaims have is kept, since not every sandbox is known", "error", err)
		return func(protocol.UID) bool { return true }
	}
	there := map[protocol.UID]bool{}
	for _, e := range cached {
		if uid := sandboxOf(e).pod.UID; !there[uid] {
			there[uid] = r.host.There(e.Netns)
		}
	}
	return func(pod protocol.UID) bool { return there[pod] }
}

const (
	// tellsArrived is how many of the last ADDs a report tells, and tellsFreed how many of the last
	// DELs of one address. Anybody can have pods come and go in quick succession, on one address as
	// well, and a report has room for so much. What is left out costs time, or keeps an address for
	// a pod that is about to go.
	tellsArrived = 512
	tellsFreed   = 32
)

// Ask begins to answer what the registration asks, unless the answer is there already. Nothing is
// asked by "": the answer is forgotten.
func (r *Reporter) Ask(look string) {
	r.mu.Lock()
	begin := look != "" && look != r.asked && !r.answering
	r.asked, r.answering = look, r.answering || begin
	if look == "" {
		r.answer = ""
	}
	r.mu.Unlock()
	if begin {
		r.start(func(ctx context.Context) {
			for text := look; text != ""; {
				text = r.find(ctx, text)
			}
		})
	}
}

// find finds out what is asked. If something else is asked by then it returns that: what is slow
// to read is read for one question at a time.
func (r *Reporter) find(ctx context.Context, text string) (next string) {
	answer := ""
	look, err := protocol.ParseQuery(text)
	if err != nil {
		r.log.WarnContext(ctx, "what the registration asks is not understood", "error", err)
	} else {
		answer = r.report(ctx, look).String()
	}
	r.mu.Lock()
	if r.asked != text && ctx.Err() == nil {
		next = r.asked
	} else {
		r.answer = answer
	}
	r.answering = next != ""
	r.mu.Unlock()
	if next == "" && answer != "" {
		r.ready()
	}
	return next
}

// report returns which pods run on the node, and what they have in the look's ranges: whoever
// gave it, as the CNI library's results and host-local's files say, and by Tenure, as the store
// says. The library writes a result only after the store has the address, and a pod shows what it
// had until it is gone.
func (r *Reporter) report(ctx context.Context, look protocol.Query) protocol.Report {
	rep := protocol.Report{ID: look.ID, Parts: look.Parts}
	unseen := func(of protocol.HostLocal, err error) {
		r.log.WarnContext(ctx, "what pods have cannot be read", "network", of.Network, "error", err)
		rep.Unseen = append(rep.Unseen, protocol.Unseen{HostLocal: of, Why: err.Error()})
	}
	within, rangesErr := rangesOfLook(look)
	cached, damaged, cachedErr := r.host.Cached()
	pods, has, running := r.cachedSandboxes(cached, within)
	for _, n := range look.HostLocal {
		for _, f := range damaged {
			if f.MayBeOf(n.Network) {
				unseen(n, f)
			}
		}
		more, err := r.hostLocal(n, within, pods)
		if err != nil {
			unseen(n, err)
		}
		has = append(has, more...)
	}
	given, asked, givenErr := r.given(ctx, look, within)
	namePools(has, given)
	rep.Running, rep.Asked, rep.Has = running, asked, slices.DeleteFunc(once(append(has, given...)), look.Told)
	if err := errors.Join(rangesErr, cachedErr, givenErr); err != nil {
		r.log.WarnContext(ctx, "what pods have cannot be read", "error", err)
		rep.Unread = err.Error()
	}
	return rep
}

// rangesOfLook returns the addresses that are asked for; none where the question does not read.
func rangesOfLook(look protocol.Query) (*netipx.IPSet, error) {
	within, err := protocol.ParseRanges(look.Ranges)
	if err != nil {
		return new(netipx.IPSet), err
	}
	var b netipx.IPSetBuilder
	for _, r := range within.Ranges() {
		if from := look.From; r.From().Less(from) { // the zero address is less than all
			if r.To().Less(from) {
				continue
			}
			r = netipx.IPRangeFrom(from, r.To())
		}
		b.AddRange(r)
	}
	return b.IPSet()
}

// cachedSandboxes returns what the CNI library's results say of containers, by their IDs; and of
// the sandboxes that may be there, what they have and whose they are.
func (r *Reporter) cachedSandboxes(cached []cniresults.Entry, within *netipx.IPSet) (pods map[string]sandbox, has []protocol.Sighting, running []protocol.UID) {
	pods = map[string]sandbox{}
	for _, e := range cached {
		box := sandboxOf(e)
		box.there = r.host.There(e.Netns)
		pods[e.ContainerID] = box.or(pods[e.ContainerID])
		if !box.there {
			continue
		}
		if box.pod.UID != "" {
			running = append(running, box.pod.UID)
		}
		for _, ip := range e.IPs {
			if x := ip.Address.Addr(); within.Contains(x) {
				has = append(has, protocol.Sighting{
					Addr: x, Pod: box.pod, Sandbox: e.ContainerID, Network: e.Network, IPAM: ipamOf(e),
				})
			}
		}
	}
	slices.Sort(running)
	return pods, has, slices.Compact(running)
}

// given returns what Tenure has given here, or taken back of late, and the pods that have asked it
// for an address on the look's networks.
func (r *Reporter) given(ctx context.Context, look protocol.Query, within *netipx.IPSet) (has []protocol.Sighting, asked map[string][]protocol.UID, err error) {
	of := func(a arrival) bool {
		return a.pod != "" && slices.ContainsFunc(look.HostLocal, func(n protocol.HostLocal) bool { return n.Network == a.network })
	}
	arrived := slices.DeleteFunc(r.arrived.all(r.sched.Now()), func(a arrival) bool { return !of(a) })
	arrived = arrived[:min(len(arrived), tellsArrived)]
	err = r.st.ViewContext(ctx, func(tx *store.Tx) error {
		for att, err := range tx.Attachments() {
			if err != nil {
				return err
			}
			if a := (arrival{att.Pod.UID, att.Network}); of(a) {
				arrived = append(arrived, a)
			}
			has = append(has, sightingsOf(att)...)
		}
		return nil
	})
	freed := map[netip.Addr]int{}
	for _, s := range r.freed.all(r.sched.Now()) { // after the store: what is freed is noted before
		if freed[s.Addr]++; freed[s.Addr] <= tellsFreed {
			s.Freed = true
			has = append(has, s)
		}
	}
	asked = map[string][]protocol.UID{}
	for _, a := range arrived {
		asked[a.network] = append(asked[a.network], a.pod)
	}
	for network, pods := range asked {
		slices.Sort(pods)
		asked[network] = slices.Compact(pods)
	}
	return slices.DeleteFunc(has, func(s protocol.Sighting) bool { return !within.Contains(s.Addr) }), asked, err
}

// namePools names the pools of what the CNI library's results say that Tenure has given, as far as
// the store tells them.
func namePools(has, given []protocol.Sighting) {
	type place struct {
		sandbox, network string
		addr             netip.Addr
	}
	pools := map[place]protocol.PoolName{}
	for _, s := range given {
		pools[place{s.Sandbox, s.Network, s.Addr}] = s.Pool
	}
	for i, s := range has {
		if s.IPAM == poolspec.Type {
			has[i].Pool = pools[place{s.Sandbox, s.Network, s.Addr}]
		}
	}
}

// sightingsOf returns what an attachment has by Tenure.
func sightingsOf(att store.Attachment) (has []protocol.Sighting) {
	pod := protocol.PodRef{Namespace: att.Pod.Namespace, Name: att.Pod.Name, UID: att.Pod.UID}
	for _, x := range att.Addresses {
		has = append(has, protocol.Sighting{
			Addr: x.Addr, Pod: pod, Sandbox: att.ContainerID, Network: att.Network, IPAM: poolspec.Type, Pool: x.Pool,
		})
	}
	return has
}

// once returns each of all once, in order of the addresses.
func once(all []protocol.Sighting) []protocol.Sighting {
	slices.SortFunc(all, protocol.Sighting.Compare)
	return slices.Compact(all)
}

// sandbox is what the CNI library's results say of a container.
type sandbox struct {
	pod   protocol.PodRef
	there bool // its network namespace may be there
}

// or returns what s and another result of the container say together.
func (s sandbox) or(other sandbox) sandbox {
	if s.pod.UID == "" {
		s.pod = other.pod
	}
	s.there = s.there || other.there
	return s
}

// sandboxOf reads whose attachment a result is, from CNI_ARGS.
func sandboxOf(e cniresults.Entry) (s sandbox) {
	for pair := range strings.SplitSeq(e.Args, ";") {
		key, value, _ := strings.Cut(pair, "=")
		switch key {
		case "K8S_POD_NAMESPACE":
			s.pod.Namespace = value
		case "K8S_POD_NAME":
			s.pod.Name = value
		case "K8S_POD_UID":
			s.pod.UID = protocol.UID(value)
		}
	}
	return s
}

// mostType is how much of the type of an IPAM is told, in bytes. A plugin that has no IPAM does not
// look at what is written there.
const mostType = 64

// ipamOf returns the type of the IPAM that gave an attachment its addresses: Tenure's where
// it is one of several. In local mode that is another one, of which the cluster knows nothing.
func ipamOf(e cniresults.Entry) string {
	found := ""
	for _, text := range e.IPAM {
		var conf struct {
			IPAM struct{ Type, Mode string } `json:"ipam"`
		}
		if json.Unmarshal(text, &conf) != nil || conf.IPAM.Type == "" {
			continue
		}
		local := conf.IPAM.Mode == poolspec.ModeLocal.String()
		if conf.IPAM.Type == poolspec.Type && !local {
			return poolspec.Type
		}
		if found = strings.ToValidUTF8(conf.IPAM.Type[:min(len(conf.IPAM.Type), mostType)], ""); local {
			found += " in local mode"
		}
	}
	return found
}

// hostLocal returns what host-local's files of a network say. Those of a container of which the
// CNI library has results are believed while its namespace is there; of another nobody can tell
// that it is gone.
func (r *Reporter) hostLocal(n protocol.HostLocal, within *netipx.IPSet, pods map[string]sandbox) (has []protocol.Sighting, err error) {
	files, err := r.host.HostLocal(n.Network, n.DataDir)
	if err != nil {
		err = fmt.Errorf("host-local's files of network %s: %w", n.Network, err)
	}
	for _, f := range files {
		box, known := pods[f.Container]
		if !within.Contains(f.Addr) || known && !box.there {
			continue
		}
		if f.Container == "" {
			err = errors.Join(err, fmt.Errorf("host-local's files of network %s: that of %v names no container", n.Network, f.Addr))
			continue
		}
		has = append(has, protocol.Sighting{Addr: f.Addr, Pod: box.pod, Sandbox: f.Container, Network: n.Network, IPAM: "host-local"})
	}
	return has, err
}
