package resourceclaims_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resource "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/tenured/daemon"
	"github.com/tenure-ipam/tenure/ipam/cniresults"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// soon has the agent look for garbage often.
func soon(c *daemon.Config) { c.Agent.SweepEvery = 100 * time.Millisecond }

// sandbox has the CNI library's result of a pod's sandbox lie on the node. It returns what ends the
// sandbox.
func sandbox(t *testing.T, n *fleet.Node, pod *corev1.Pod) (end func()) {
	t.Helper()
	netns := filepath.Join(n.Config().NetnsDirs[0], pod.Name)
	raw, err := json.Marshal(cniresults.Record{
		Kind: "cniCacheV1", ContainerID: "box-" + pod.Name, IfName: "eth0", NetworkName: "default", NetNS: netns,
		Config:  []byte(`{"cniVersion":"1.1.0","name":"default","plugins":[{"type":"x"}]}`),
		CNIArgs: [][2]string{{"K8S_POD_NAMESPACE", pod.Namespace}, {"K8S_POD_NAME", pod.Name}, {"K8S_POD_UID", string(pod.UID)}},
		Result:  []byte(`{"cniVersion":"1.1.0","ips":[]}`),
	})
	for _, dir := range []string{n.Config().NetnsDirs[0], n.Config().ResultDirs[0]} {
		if err == nil {
			err = os.MkdirAll(dir, 0o700)
		}
	}
	if err == nil {
		err = os.WriteFile(netns, nil, 0o600)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(n.Config().ResultDirs[0], "default-box-"+pod.Name+"-eth0"), raw, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(netns); err != nil {
			t.Fatal(err)
		}
	}
}

// A release that never comes is made good: when the ResourceClaim is gone, and no sandbox of its
// pod is here. The address is not another's before.
func TestGarbage(t *testing.T) {
	newPool(t, "garbage", v1alpha1.Range{CIDR: "10.70.0.0/30"}) // two addresses
	_, d := start(t, "garbage", soon)
	here, alone := newOwnerOf(t, d, "garbage-here"), newOwnerOf(t, d, "garbage-alone")
	end := sandbox(t, d.n, here.pod)
	addrs := d.has(here.claim, "eth1", profile("tenure.dev/garbage")).Interface.Addresses
	other := d.has(alone.claim, "eth1", profile("tenure.dev/garbage")).Interface.Addresses
	remove(t, here.pod, here.claim) // by force: the sandbox is there
	remove(t, alone.pod, alone.claim)
	next, _ := newOwner(t, d.n, "garbage-next")
	d.same(next, "eth1", profile("tenure.dev/garbage"), other) // so garbage was found by now
	last, _ := newOwner(t, d.n, "garbage-last")
	if got, err := d.prepare(last, "eth1", profile("tenure.dev/garbage")); err == nil {
		t.Errorf("another has %v while the sandbox is there", got.Interface.Addresses)
	}
	end()
	d.same(last, "eth1", profile("tenure.dev/garbage"), addrs)
}

// A ResourceClaim that stays has its addresses no longer than its devices: when its last pod has
// ended, Kubernetes takes them away, and may allocate others on another node. No release comes.
func TestDeallocated(t *testing.T) {
	newPool(t, "let", v1alpha1.Range{CIDR: "10.76.0.0/30"}) // two addresses
	_, d := start(t, "let", soon)
	stays, goes := newOwnerOf(t, d, "let-stays"), newOwnerOf(t, d, "let-goes")
	kept := d.has(stays.claim, "eth1", profile("tenure.dev/let")).Interface.Addresses
	freed := d.has(goes.claim, "eth1", profile("tenure.dev/let")).Interface.Addresses
	end := sandbox(t, d.n, goes.pod)
	remove(t, goes.pod)
	allocate(t, goes.claim, "")
	next, _ := newOwner(t, d.n, "let-next")
	if got, err := d.prepare(next, "eth1", profile("tenure.dev/let")); err == nil {
		t.Errorf("another has %v while the sandbox is there", got.Interface.Addresses)
	}
	end()
	d.same(next, "eth1", profile("tenure.dev/let"), freed)
	d.same(stays.claim, "eth1", profile("tenure.dev/let"), kept)
}

// A device of another node is another one, although it has the same name: DRANET names devices by
// their places on the bus, which are the same on machines of one kind.
func TestDeviceOfAnotherNode(t *testing.T) {
	newPool(t, "moved", v1alpha1.Range{CIDR: "10.79.0.0/30"}) // two addresses
	_, d := start(t, "moved", soon)
	stays, moves := newOwnerOf(t, d, "moved-stays"), newOwnerOf(t, d, "moved-moves")
	allocate(t, stays.claim, "")
	allocate(t, stays.claim, d.n.Name, "eth1")
	kept := d.has(stays.claim, "eth1", profile("tenure.dev/moved")).Interface.Addresses
	freed := d.has(moves.claim, "eth1", profile("tenure.dev/moved")).Interface.Addresses
	remove(t, moves.pod)
	allocate(t, moves.claim, "")
	allocate(t, moves.claim, "another", "eth1")
	next, _ := newOwner(t, d.n, "moved-next")
	d.same(next, "eth1", profile("tenure.dev/moved"), freed)
	d.same(stays.claim, "eth1", profile("tenure.dev/moved"), kept)
}

// A ResourceClaim of the same name is another owner.
func TestGarbageUnderTheSameName(t *testing.T) {
	newPool(t, "anew", v1alpha1.Range{CIDR: "10.71.0.0/24"})
	_, d := start(t, "anew", soon)
	old := newOwnerOf(t, d, "anew")
	first := d.has(old.claim, "eth1", profile("tenure.dev/anew")).Interface.Addresses
	remove(t, old.pod, old.claim)
	now := newOwnerOf(t, d, "anew")
	if got := d.has(now.claim, "eth1", profile("tenure.dev/anew")).Interface.Addresses; slices.Equal(got, first) {
		t.Errorf("the new ResourceClaim has %v at once", got)
	}
	used(t, "anew", 1)
}

// A pod means the ResourceClaim that has the name now, also where the agent has read another one of
// that name for it.
func TestMadeAnew(t *testing.T) {
	newPool(t, "made", v1alpha1.Range{CIDR: "10.77.0.0/24"})
	_, d := start(t, "made", nil)
	old := newOwnerOf(t, d, "made")
	first := d.has(old.claim, "eth1", profile("tenure.dev/made")).Interface.Addresses
	remove(t, old.claim)
	now := newClaim(t, "made", nil)
	if got := d.has(now, "eth1", profile("tenure.dev/made")).Interface.Addresses; slices.Equal(got, first) {
		t.Errorf("the new ResourceClaim has %v at once", got)
	}
}

type owner struct {
	claim *resource.ResourceClaim
	pod   *corev1.Pod
}

func newOwnerOf(t *testing.T, d *driver, name string) (o owner) {
	t.Helper()
	o.claim, o.pod = newOwner(t, d.n, name)
	return o
}

// Another pod that has the ResourceClaim later has its addresses; which pod that is counts for
// garbage.
func TestNextPod(t *testing.T) {
	newPool(t, "next", v1alpha1.Range{CIDR: "10.72.0.0/30"})
	_, d := start(t, "next", func(c *daemon.Config) { soon(c); c.Agent.PublishEvery = 100 * time.Millisecond })
	c, pod := newOwner(t, d.n, "next-1")
	want := d.has(c, "eth1", profile("tenure.dev/next")).Interface.Addresses
	remove(t, pod)
	pod = newPod(t, d.n, "next-2", c)
	end := sandbox(t, d.n, pod)
	fleet.Eventually(t, time.Minute, func() error { // once the agent has heard of the pod
		d.same(c, "eth1", profile("tenure.dev/next"), want)
		var leases v1alpha1.IPLeaseList
		if err := kc.List(t.Context(), &leases); err != nil {
			return err
		}
		for _, l := range leases.Items {
			if l.Spec.Pool == "next" && strings.Contains(strings.Join(l.Status.Allocations, "\n"), "next-2") {
				return nil
			}
		}
		return errors.New("no lease of the pool says that pod next-2 has an address")
	})
	remove(t, pod, c)
	alone := newOwnerOf(t, d, "next-alone")
	d.has(alone.claim, "eth1", profile("tenure.dev/next"))
	remove(t, alone.pod, alone.claim)
	last, _ := newOwner(t, d.n, "next-last")
	if got := d.has(last, "eth1", profile("tenure.dev/next")).Interface.Addresses; slices.Equal(got, want) {
		t.Errorf("another has %v while the second pod's sandbox is there", got)
	}
	end()
}

// A reboot frees nothing of a ResourceClaim that is there, and a kill of the agent neither.
func TestRebootAndKill(t *testing.T) {
	newPool(t, "boot", v1alpha1.Range{CIDR: "10.73.0.0/30"})
	f, d := start(t, "boot", soon)
	lives, gone := newOwnerOf(t, d, "boot-lives"), newOwnerOf(t, d, "boot-gone")
	want := d.has(lives.claim, "eth1", profile("tenure.dev/boot")).Interface.Addresses
	other := d.has(gone.claim, "eth1", profile("tenure.dev/boot")).Interface.Addresses
	d.n.Stop()
	p := fleet.Build(t, cp, "tenured")
	d.n.Config().Agent.Boot = "another boot"
	f.Start("boot")
	remove(t, gone.pod, gone.claim)
	next, _ := newOwner(t, d.n, "boot-next")
	d.same(next, "eth1", profile("tenure.dev/boot"), other) // so garbage was looked for since
	d.same(lives.claim, "eth1", profile("tenure.dev/boot"), want)

	d.n.Stop()
	d.n.Config().Agent.Boot = ""
	f.LaunchProcess(p, "boot")
	d.n.AwaitServing()
	d.same(lives.claim, "eth1", profile("tenure.dev/boot"), want)
	d.n.Kill()
	if _, err := d.prepare(lives.claim, "eth1", profile("tenure.dev/boot")); err == nil {
		t.Error("a dead agent answers")
	}
	f.LaunchProcess(p, "boot")
	d.n.AwaitServing()
	d.same(lives.claim, "eth1", profile("tenure.dev/boot"), want)
	d.same(next, "eth1", profile("tenure.dev/boot"), other)
	d.n.Stop()
}

// What a ResourceClaim has it is answered again while the API server is away, also by an agent that
// has just started.
func TestAPIAway(t *testing.T) {
	newPool(t, "away", v1alpha1.Range{CIDR: "10.74.0.0/20"})
	f, d := start(t, "away", nil)
	c, _ := newOwner(t, d.n, "away")
	want := d.has(c, "eth1", profile("tenure.dev/away")).Interface.Addresses
	if err := cp.PauseAPIServer(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cp.ResumeAPIServer(); err != nil {
			t.Error(err)
		}
	}()
	d.same(c, "eth1", profile("tenure.dev/away"), want)
	d.n.Stop()
	f.Start("away")
	d.same(c, "eth1", profile("tenure.dev/away"), want)
	d.release(c, "eth1")
}

// When a node's store is lost, nobody gets what a ResourceClaim has, for as long as it has the
// device, and it is answered the same again, by its status. When it lets go all comes back.
func TestStoreLost(t *testing.T) {
	newPool(t, "lost", v1alpha1.Range{CIDR: "10.78.0.0/26", Gateway: "10.78.0.1"})
	define(t, "default", "lost", `{"cniVersion":"1.0.0","name":"lost-net","plugins":[{"type":"x","ipam":{"type":"tenure","pool":"lost","routes":[{"dst":"10.0.0.0/8"}]}}]}`, nil)
	fleet.Create(t, kc, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "lost"}}) // check looks at it
	f, d := start(t, "lost", func(c *daemon.Config) { soon(c); c.Agent.PublishEvery = 100 * time.Millisecond })
	o, next := newOwnerOf(t, d, "lost"), newOwnerOf(t, d, "lost-next")
	had := d.has(o.claim, "eth1", profile("default/lost"))
	say(t, o.claim, "eth1", had.Interface.Addresses)
	used(t, "lost", 1) // as is published
	old := leasesOf(t, "lost")
	d.n.Stop()
	if err := os.Remove(d.n.Config().Store); err != nil {
		t.Fatal(err)
	}
	f.Start("lost")
	if got := d.has(next.claim, "eth1", profile("tenure.dev/lost")).Interface.Addresses; slices.Equal(got, had.Interface.Addresses) {
		t.Errorf("another has %v, which was given before the store was lost", got)
	}
	if got := d.has(o.claim, "eth1", profile("default/lost")); !reflect.DeepEqual(got, had) {
		t.Errorf("asked again it has %+v; want %+v", got, had)
	}
	addr, _, _ := strings.Cut(had.Interface.Addresses[0], "/")
	tool := kubectlTenure(t)
	if said := tool("who", addr); !strings.Contains(said, "ResourceClaim default/lost, device eth1,") || !strings.Contains(said, "a store of the node published which was lost") {
		t.Errorf("who says %s", said)
	}
	if said := tool("check", "--apart=1s"); !strings.Contains(said, "device eth1 of ResourceClaim default/lost ("+addr+")") {
		t.Errorf("check says %s", said)
	}
	remove(t, o.pod, next.pod)
	allocate(t, o.claim, "")
	allocate(t, next.claim, "")
	fleet.Eventually(t, time.Minute, func() error {
		for name := range leasesOf(t, "lost") {
			if _, frozen := old[name]; frozen {
				return fmt.Errorf("lease %s of the lost store is still there", name)
			}
		}
		return nil
	})
}

// leasesOf returns the leases of a pool by their names.
func leasesOf(t *testing.T, pool string) map[string]v1alpha1.IPLease {
	t.Helper()
	var all v1alpha1.IPLeaseList
	if err := kc.List(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	of := map[string]v1alpha1.IPLease{}
	for _, l := range all.Items {
		if l.Spec.Pool == pool {
			of[l.Name] = l
		}
	}
	return of
}
