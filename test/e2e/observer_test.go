package e2e_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenure-ipam/tenure/test/cluster"
)

// An observer looks at the interfaces of all pods that run, on all nodes, again and again:
// in their network namespaces, which it finds by the pods' processes. It asks no API
// server and no IPAM, so it knows what is so, whoever says otherwise.
type observer struct {
	end   context.CancelFunc
	ended chan struct{}

	mu     sync.Mutex
	rounds int
	first  map[string]pod // by sandbox: each as it was when first seen
	faults []fault
	err    error
}

// A pod is what runs in one sandbox.
type pod struct {
	uid     types.UID
	sandbox string
	pid     string // of the process that holds the sandbox
	ns      string // its network namespace, as the kernel calls it
	// addresses are those of each interface, in order.
	addresses map[string][]netip.Addr
}

// A fault is an address that two running pods had at one time, or one that a running pod
// had no longer.
type fault struct {
	address netip.Addr
	// pods are the two, or the one.
	pods [2]types.UID
}

// observe starts an observer, which ends with the spec.
func observe() *observer {
	ctx, end := context.WithCancel(context.Background())
	o := &observer{end: end, ended: make(chan struct{}), first: map[string]pod{}}
	go o.run(ctx)
	DeferCleanup(o.stop)
	return o
}

// stop ends the observer, and returns when it looks no more. It can be called again.
func (o *observer) stop() {
	o.end()
	<-o.ended
}

func (o *observer) run(ctx context.Context) {
	defer close(o.ended)
	tick := time.NewTicker(2 * often)
	defer tick.Stop()
	for {
		pods, err := lookAtPods(c.Nodes)
		o.note(pods, err)
		if err != nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// note compares what one round has seen with itself and with what was there before.
func (o *observer) note(pods []pod, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.rounds++
	o.err = err
	by := map[netip.Addr]types.UID{}
	for _, p := range pods {
		before, known := o.first[p.sandbox]
		if !known {
			before = pod{uid: p.uid, addresses: map[string][]netip.Addr{}}
			o.first[p.sandbox] = before
		}
		for name, had := range before.addresses {
			for _, a := range had {
				if !slices.Contains(p.addresses[name], a) {
					o.faultLocked(fault{address: a, pods: [2]types.UID{p.uid}})
				}
			}
		}
		for name, addresses := range p.addresses {
			if len(before.addresses[name]) == 0 {
				before.addresses[name] = addresses
			}
			for _, a := range addresses {
				if other, taken := by[a]; taken {
					o.faultLocked(fault{address: a, pods: [2]types.UID{min(other, p.uid), max(other, p.uid)}})
				}
				by[a] = p.uid
			}
		}
	}
}

// faultLocked keeps a fault that is new. o.mu must be held.
func (o *observer) faultLocked(f fault) {
	if !slices.Contains(o.faults, f) {
		o.faults = append(o.faults, f)
	}
}

// seen returns the addresses of one interface of all pods that were seen, by their UIDs.
func (o *observer) seen(ifName string) map[types.UID][]netip.Addr {
	o.mu.Lock()
	defer o.mu.Unlock()
	found := map[types.UID][]netip.Addr{}
	for _, p := range o.first {
		if addresses := p.addresses[ifName]; len(addresses) > 0 {
			found[p.uid] = append(found[p.uid], addresses...)
		}
	}
	return found
}

// expectNoFault checks that no address was seen twice, none has changed, and that pods, all
// of which run, were seen. Names are those of all pods that there have been.
func (o *observer) expectNoFault(names map[types.UID]string, pods ...*corev1.Pod) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		seen := o.seen("net1")
		for _, p := range pods {
			g.Expect(seen).To(HaveKey(p.UID), "pod %s was seen", p.Name)
		}
	}).WithTimeout(time.Minute).Should(Succeed())
	o.mu.Lock()
	defer o.mu.Unlock()
	Expect(o.err).NotTo(HaveOccurred())
	named := func(uid types.UID) string { return cmp.Or(names[uid], string(uid)) }
	var said []string
	twice := map[netip.Addr]bool{}
	for _, f := range o.faults {
		if f.pods[1] == "" {
			said = append(said, fmt.Sprintf("%s of %s has changed", f.address, named(f.pods[0])))
			continue
		}
		twice[f.address] = true
		said = append(said, fmt.Sprintf("%s is that of %s and of %s", f.address, named(f.pods[0]), named(f.pods[1])))
	}
	summary := fmt.Sprintf("%d sandboxes in %d rounds: %d addresses twice, %d faults in all", len(o.first), o.rounds, len(twice), len(said))
	AddReportEntry("observer", summary)
	slices.Sort(said)
	Expect(said).To(BeEmpty(), summary)
}

// sandboxGroup is the end of the name of the cgroup that a sandbox's process is in.
var sandboxGroup = regexp.MustCompile(`/pod([0-9a-f-]{36})/([0-9a-f]{64})\n`)

// holds is the command line of the process that holds a sandbox. It runs from after the
// pod's interfaces are made until before they are removed.
const holds = "/pod\x00pause\x00"

// lookAtPods returns the pods that run and have interfaces of their own, not their node's:
// those whose sandbox was there before the first of the interfaces was looked at and is
// there after the last. So all that it returns were there at one time.
func lookAtPods(nodes []*cluster.Node) (pods []pod, err error) {
	hosts := map[string]bool{}
	for _, n := range nodes {
		ns, err := os.Readlink(n.Path("/proc/1/ns/net"))
		if err != nil {
			return nil, err
		}
		hosts[ns] = true
	}
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	for _, process := range processes {
		p, ok, err := podOf(process)
		if err != nil {
			return nil, err
		}
		if ok && !hosts[p.ns] {
			pods = append(pods, p)
		}
	}
	for i := range pods {
		if pods[i].addresses, err = addressesOf(pods[i].pid); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(pods, func(p pod) bool { return !holdsSandbox(filepath.Join("/proc", p.pid)) }), nil
}

// holdsSandbox reports whether a process holds a sandbox and has not ended.
func holdsSandbox(process string) bool {
	text, err := os.ReadFile(filepath.Join(process, "cmdline"))
	return err == nil && string(text) == holds
}

// podOf returns the pod whose sandbox a process holds; not ok if it holds none.
func podOf(process string) (p pod, ok bool, err error) {
	if !holdsSandbox(process) {
		return pod{}, false, nil
	}
	ns, nsErr := os.Readlink(filepath.Join(process, "ns/net"))
	text, err := os.ReadFile(filepath.Join(process, "cgroup"))
	group := sandboxGroup.FindSubmatch(append(bytes.TrimSpace(text), '\n'))
	if !holdsSandbox(process) {
		return pod{}, false, nil // it has ended meanwhile: the rest may be anything
	}
	if err := errors.Join(err, nsErr); err != nil {
		return pod{}, false, err
	}
	if group == nil {
		return pod{}, false, fmt.Errorf("%s holds a sandbox and is in no pod's cgroup: %s", process, text)
	}
	return pod{uid: types.UID(group[1]), sandbox: string(group[2]), pid: filepath.Base(process), ns: ns}, true, nil
}

// addressesOf returns the addresses in a process's network namespace, without those that
// every interface has by itself; none if the process has ended.
func addressesOf(pid string) (map[string][]netip.Addr, error) {
	found := map[string][]netip.Addr{}
	ns, err := netns.GetFromPath(filepath.Join("/proc", pid, "ns/net"))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return found, nil
	}
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	there, err := netlink.NewHandleAt(ns)
	if err != nil {
		return nil, err
	}
	defer there.Close()
	links, err := there.LinkList()
	if err != nil {
		return nil, err
	}
	for _, l := range links {
		addresses, err := there.AddrList(l, netlink.FAMILY_ALL)
		if err != nil {
			return nil, err
		}
		for _, a := range addresses {
			ip, _ := netip.AddrFromSlice(a.IP)
			if ip = ip.Unmap(); !ip.IsLoopback() && !ip.IsLinkLocalUnicast() {
				found[l.Attrs().Name] = append(found[l.Attrs().Name], ip)
			}
		}
	}
	for _, addresses := range found {
		slices.SortFunc(addresses, netip.Addr.Compare)
	}
	return found, nil
}
