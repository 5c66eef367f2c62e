package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/ipam/cniresults"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// A HostLocalFile is an address that host-local has given, as its file says.
type HostLocalFile struct {
	Addr      netip.Addr
	Container string
	IfName    string
}

// arrivals are the pods whose ADDs have come to this agent of late. The zero value is
// ready.
type arrivals struct {
	mu   sync.Mutex
	last map[protocol.UID]protocol.Instant // guarded by mu
}

const (
	// arrivalKept is for how long an ADD tells that another IPAM is done with its pod.
	arrivalKept = 5 * time.Minute
	// arrivalsMost bounds how many are remembered.
	arrivalsMost = 1024
)

// note notes an ADD for a pod.
func (r *arrivals) note(pod protocol.UID, now protocol.Instant) {
	if pod == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil || len(r.last) >= arrivalsMost {
		kept := map[protocol.UID]protocol.Instant{}
		for uid, at := range r.last {
			if now.Since(at) < arrivalKept {
				kept[uid] = at
			}
		}
		r.last = kept
	}
	r.last[pod] = now
}

// all returns the pods whose ADDs have come of late.
func (r *arrivals) all(now protocol.Instant) (pods []protocol.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid, at := range r.last {
		if now.Since(at) < arrivalKept {
			pods = append(pods, uid)
		}
	}
	slices.Sort(pods)
	return pods
}

// hearLook begins to answer what a registration asks, if the registration is this agent's and the
// answer is not there yet; an answer that nobody asks for any more goes with the next heartbeat.
func (a *Agent) hearLook(s protocol.Registration) {
	if !a.ours(s) {
		return
	}
	a.mu.Lock()
	fresh := s.Look != "" && s.Look != a.asked
	a.asked = s.Look
	if s.Look == "" {
		a.answer = ""
	}
	a.mu.Unlock()
	if fresh {
		a.background(func(ctx context.Context) { a.answerLook(ctx, s.Look) })
	}
}

// answerLook finds out what is asked, and has the next heartbeat, which is due at once, say
// it.
func (a *Agent) answerLook(ctx context.Context, text string) {
	look, err := protocol.ParseLook(text)
	if err != nil {
		a.log.WarnContext(ctx, "what the registration asks is not understood", "error", err)
		return
	}
	report := a.report(ctx, look)
	a.mu.Lock()
	current := a.asked == text
	if current {
		a.answer = report.String()
	}
	a.mu.Unlock()
	if current {
		a.wakeRegistration()
	}
}

// report returns which pods run on the node, and what they have in the look's ranges,
// whoever gave it: as the CNI library's results and host-local's files say.
func (a *Agent) report(ctx context.Context, look protocol.Look) protocol.Report {
	r := protocol.Report{ID: look.ID, Asking: a.arrivals.all(a.clock.Now())}
	var unread []string
	within, err := rangesOf(look.Ranges)
	if err != nil {
		return protocol.Report{ID: look.ID, Unread: err.Error()}
	}
	cached, faults, err := a.host.Cached()
	for _, f := range append(faults, err) {
		if f != nil {
			unread = append(unread, f.Error())
		}
	}
	pods := map[string]sandbox{} // by container ID
	running := map[protocol.UID]bool{}
	for _, e := range cached {
		box := sandboxOf(e)
		box.there = a.host.There(e.Netns)
		pods[e.ContainerID] = box.or(pods[e.ContainerID])
		if !box.there {
			continue
		}
		if box.pod.UID != "" {
			running[box.pod.UID] = true
		}
		for _, ip := range e.IPs {
			if x := ip.Address.Addr(); within.Contains(x) {
				r.Has = append(r.Has, protocol.Sighting{
					Addr: x, Pod: box.pod, Sandbox: e.ContainerID, Interface: e.IfName, Network: e.Network, IPAM: ipamOf(e),
				})
			}
		}
	}
	more, why := a.hostLocal(look.HostLocal, within, pods)
	r.Has = append(r.Has, more...)
	for uid := range running {
		r.Running = append(r.Running, uid)
	}
	slices.Sort(r.Running)
	r.Unread = clip(strings.Join(append(unread, why...), "; "))
	if r.Unread != "" {
		a.log.WarnContext(ctx, "not all that pods have can be read", "error", r.Unread)
	}
	return r
}

// clip keeps what is said for people short.
func clip(text string) string {
	const most = 1024
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
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

// ipamOf returns the type of the IPAM that gave an attachment its addresses: Tenure's where
// it is one of several.
func ipamOf(e cniresults.Entry) string {
	found := ""
	for _, text := range e.IPAM {
		var conf struct {
			IPAM struct{ Type string } `json:"ipam"`
		}
		if json.Unmarshal(text, &conf) != nil || conf.IPAM.Type == "" {
			continue
		}
		if conf.IPAM.Type == poolspec.Type {
			return poolspec.Type
		}
		found = conf.IPAM.Type
	}
	return found
}

// hostLocal returns what host-local's files of some networks say. Those of a container of
// which the CNI library has results are believed while its namespace is there; of another
// nobody can tell that it is gone.
func (a *Agent) hostLocal(networks []protocol.HostLocal, within *netipx.IPSet, pods map[string]sandbox) (has []protocol.Sighting, unread []string) {
	for _, n := range networks {
		files, err := a.host.HostLocal(n.Network, n.DataDir)
		if err != nil {
			unread = append(unread, fmt.Sprintf("host-local's files of network %s: %v", n.Network, err))
		}
		for _, f := range files {
			box, known := pods[f.Container]
			if !within.Contains(f.Addr) || known && !box.there {
				continue
			}
			has = append(has, protocol.Sighting{Addr: f.Addr, Pod: box.pod, Sandbox: f.Container, Interface: f.IfName, Network: n.Network, IPAM: "host-local"})
		}
	}
	return has, unread
}
