package ports

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/ipam/controller/neutron"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

const (
	macA, macB = "fa:16:3e:00:00:0a", "fa:16:3e:00:00:0b"
	machine    = "0a000000-0000-0000-0000-000000000001"
)

var (
	pairA = neutron.Pair{Addr: "10.9.0.5", MAC: macA}
	pairB = neutron.Pair{Addr: "10.9.0.6", MAC: macB}
)

// nodesPort is the port of the machine.
func nodesPort(pairs ...neutron.Pair) []neutron.ServerPort {
	return []neutron.ServerPort{{ID: "vm", Server: machine, Pairs: pairs}}
}

// TestPairsAreOfThePort: a node's port allows what the claim's port has. What the claim's
// annotation tells counts for nothing.
func TestPairsAreOfThePort(t *testing.T) {
	for _, told := range []string{`{"id":"a","mac":"` + macB + `","network":"net"}`, `{"id":"a","mac":"nonsense","network":"net"}`, `{`, ""} {
		c := &cloud{ours: []neutron.Port{ourPort("a", "ua", pairA.Addr, macA)}, servers: nodesPort()}
		p, kc := newPorts(t, c, pairsPool(), virtual("vm", machine), claimOf("ua", "10.9.0.5/24", told), podOn("team", "ua", "vm"), useOf("ua", "vm"))
		if _, bad, err := p.allow(t.Context(), c, pairsPool()); err != nil || !bad.None() {
			t.Fatal(bad, err)
		}
		if got := c.pairs(); !slices.Equal(got, []neutron.Pair{pairA}) {
			t.Errorf("told %s: the node's port allows %v; want %v", told, got, pairA)
		}
		if err := kc.Delete(t.Context(), useOf("ua", "vm")); err != nil {
			t.Fatal(err)
		}
		if _, _, err := p.allow(t.Context(), c, pairsPool()); err != nil {
			t.Fatal(err)
		}
		if got := c.pairs(); len(got) > 0 {
			t.Errorf("told %s: the node's port allows %v still", told, got)
		}
	}
}

// TestPairsOfPodsThatAreThere: an agent may write a use of any claim. A node's port allows what the
// claim has for a pod that is on that node, and may have the claim. What it allows stays while the
// use is there, also when the pod's object was deleted by force.
func TestPairsOfPodsThatAreThere(t *testing.T) {
	owned := claimOf("ua", "10.9.0.5/24", "")
	owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "other", UID: "other"}}
	for what, test := range map[string]struct {
		objects []client.Object
		want    []neutron.Pair
	}{
		"no pod":                   {objects: []client.Object{claimOf("ua", "10.9.0.5/24", "")}},
		"a pod of another node":    {objects: []client.Object{claimOf("ua", "10.9.0.5/24", ""), podOn("team", "ua", "vm2")}},
		"a pod elsewhere":          {objects: []client.Object{claimOf("ua", "10.9.0.5/24", ""), podOn("other", "ua", "vm")}},
		"a pod of another UID":     {objects: []client.Object{claimOf("ua", "10.9.0.5/24", ""), podOn("team", "ub", "vm")}},
		"a claim of another pod's": {objects: []client.Object{owned, podOn("team", "ua", "vm")}},
		"the pod":                  {objects: []client.Object{claimOf("ua", "10.9.0.5/24", ""), podOn("team", "ua", "vm")}, want: []neutron.Pair{pairA}},
	} {
		t.Run(what, func(t *testing.T) {
			c := &cloud{ours: []neutron.Port{ourPort("a", "ua", pairA.Addr, macA)}, servers: nodesPort()}
			p, kc := newPorts(t, c, append(test.objects, pairsPool(), virtual("vm", machine), useOf("ua", "vm"))...)
			for range 2 {
				if _, bad, err := p.allow(t.Context(), c, pairsPool()); err != nil || !bad.None() {
					t.Fatal(bad, err)
				}
				if got := c.pairs(); !slices.Equal(got, test.want) {
					t.Fatalf("the node's port allows %v; want %v", got, test.want)
				}
				if err := client.IgnoreNotFound(kc.Delete(t.Context(), podOn("team", "ua", "vm"))); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// reads counts what is read.
type reads struct {
	client.Reader
	gets, lists int
}

func (r *reads) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	r.gets++
	return r.Reader.Get(ctx, key, o, opts...) //nolint:wrapcheck // as it is
}

func (r *reads) List(ctx context.Context, o client.ObjectList, opts ...client.ListOption) error {
	r.lists++
	return r.Reader.List(ctx, o, opts...) //nolint:wrapcheck // as it is
}

// TestPairsOfManyUses: an agent may write any number of uses, of claims that there are or not. All
// looks wait for one another, so what one reads at the API server does not grow with them. Nothing
// is read for nodes without a port.
func TestPairsOfManyUses(t *testing.T) {
	owned := claimOf("ua", "10.9.0.5/24", "")
	owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "other", UID: "other"}}
	objects := []client.Object{pairsPool(), virtual("vm", machine), owned, podOn("team", "ua", "vm"), podOn("team", "ub", "metal")}
	for i := range 50 {
		for _, node := range []string{"vm", "metal"} {
			use := useOf("ua", node)
			use.Name = fmt.Sprint(node, i)
			use.Spec.Use.Interface = fmt.Sprint("net", i)
			other := use.DeepCopy()
			other.Name += "b"
			other.Spec.Use.Claim.Name = fmt.Sprint("other", i)
			objects = append(objects, use, other)
		}
	}
	c := &cloud{ours: []neutron.Port{ourPort("a", "ua", pairA.Addr, macA)}, servers: nodesPort()}
	p, kc := newPorts(t, c, objects...)
	live := &reads{Reader: kc}
	p.Live = live
	_, bad, err := p.allow(t.Context(), c, pairsPool())
	if err != nil || bad.Reason != nodePortNotFound {
		t.Errorf("the problem is %+v, %v; want that one node has no port", bad, err)
	}
	if got := c.pairs(); len(got) > 0 || live.gets != 1 || live.lists != 1 {
		t.Errorf("the node's port allows %v after %d claims and %d lists of pods were read; want none, 1 and 1", got, live.gets, live.lists)
	}
}

// TestPairsOfPortsInDoubt: nothing is allowed on a port that may not be the node's, and the pool
// says why. Claims of which it has pairs count as stuck.
func TestPairsOfPortsInDoubt(t *testing.T) {
	c := &cloud{ours: []neutron.Port{ourPort("a", "ua", pairA.Addr, macA), ourPort("b", "ub", pairB.Addr, macB)}, servers: nodesPort(pairB)}
	c.servers[0].Doubt = &neutron.Error{Reason: neutron.NotOurs, Message: "two ports"}
	p, _ := newPorts(t, c, pairsPool(), virtual("vm", machine), claimOf("ua", "10.9.0.5/24", ""), podOn("team", "ua", "vm"), useOf("ua", "vm"))
	stuck, bad, err := p.allow(t.Context(), c, pairsPool())
	if err != nil || bad.Reason != neutron.NotOurs || bad.Message != "two ports" || !maps.Equal(stuck, map[protocol.UID]bool{"ub": true}) {
		t.Errorf("stuck are %v, the problem is %+v, %v; want ub, and why", stuck, bad, err)
	}
	if got := c.pairs(); !slices.Equal(got, []neutron.Pair{pairB}) {
		t.Errorf("the port allows %v; want what it did", got)
	}
}

// TestPairsOfTwoLooks: a use that comes while one look is under way keeps the pair that the next
// look adds.
func TestPairsOfTwoLooks(t *testing.T) {
	c := &cloud{ours: []neutron.Port{ourPort("a", "ua", pairA.Addr, macA), ourPort("b", "ub", pairB.Addr, macB)}, servers: nodesPort()}
	p, kc := newPorts(t, c, pairsPool(), virtual("vm", machine),
		claimOf("ua", "10.9.0.5/24", `{"id":"a","mac":"`+macA+`","network":"net"}`), claimOf("ub", "10.9.0.6/24", `{"id":"b","mac":"`+macB+`","network":"net"}`),
		podOn("team", "ua", "vm"), podOn("team", "ub", "vm"), useOf("ua", "vm"))
	reached, free := c.holdAt("PortsOfServers")
	defer free()
	first, second := make(chan error, 1), make(chan error, 1)
	look := func(done chan<- error) {
		_, _, err := p.allow(t.Context(), c, pairsPool())
		done <- err
	}
	go look(first)
	<-reached
	if err := kc.Create(t.Context(), useOf("ub", "vm")); err != nil {
		t.Fatal(err)
	}
	go look(second)
	time.Sleep(100 * time.Millisecond) // it ends, or waits for the first
	free()
	ends(t, "the first look", first)
	ends(t, "the second look", second)
	if got, want := c.pairs(), []neutron.Pair{pairA, pairB}; !slices.Equal(got, want) {
		t.Errorf("the node's port allows %v; want %v", got, want)
	}
}

// TestPairGoesBeforePort: while a look is about to add a pair, its use ends and its claim's port is
// to be deleted. No pair is left whose port is gone: nobody would know it.
func TestPairGoesBeforePort(t *testing.T) {
	c := &cloud{ours: []neutron.Port{ourPort("a", "ua", pairA.Addr, macA)}, servers: nodesPort()}
	p, kc := newPorts(t, c, pairsPool(), virtual("vm", machine), claimOf("ua", "10.9.0.5/24", `{"id":"a","mac":"`+macA+`","network":"net"}`), podOn("team", "ua", "vm"), useOf("ua", "vm"))
	reached, free := c.holdAt("SetPairs")
	defer free()
	first, second := make(chan error, 1), make(chan error, 1)
	go func() {
		_, _, err := p.allow(t.Context(), c, pairsPool())
		first <- err
	}()
	<-reached
	if err := kc.Delete(t.Context(), useOf("ua", "vm")); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.do(t.Context(), job{releases: []protocol.UID{"ua"}})
		second <- nil
	}()
	time.Sleep(100 * time.Millisecond) // it ends, or waits for the first
	free()
	ends(t, "the first look", first)
	ends(t, "the deletion of the port", second)
	if got := c.pairs(); len(got) > 0 || len(c.ours) > 0 {
		t.Errorf("the node's port allows %v still, and there are ports %v; want none", got, c.ours)
	}
}

// TestPairsWhileNeutronIsAway: where Neutron does not answer about one node's port, the others are
// not tried: who waits for this look would wait for each of them. What it refuses is about one.
func TestPairsWhileNeutronIsAway(t *testing.T) {
	for reason, want := range map[neutron.Reason]int{neutron.Unavailable: 1, neutron.Rejected: 2} {
		ours := []neutron.Port{ourPort("a", "ua", pairA.Addr, macA), ourPort("b", "ub", pairB.Addr, macB)}
		c := &cloud{ours: ours, refuses: &neutron.Error{Reason: reason, Message: "because"}, servers: []neutron.ServerPort{{ID: "1", Server: machine}, {ID: "2", Server: "other"}}}
		p, _ := newPorts(t, c, pairsPool(), virtual("vm", machine), virtual("vm2", "other"), useOf("ua", "vm"), useOf("ub", "vm2"),
			claimOf("ua", "10.9.0.5/24", ""), podOn("team", "ua", "vm"), claimOf("ub", "10.9.0.6/24", ""), podOn("team", "ub", "vm2"))
		if _, bad, err := p.allow(t.Context(), c, pairsPool()); err != nil || bad.Reason != reason || c.asked != want {
			t.Errorf("%s: %+v, %v after %d calls; want it after %d", reason, bad, err, c.asked, want)
		}
	}
}

// TestPairGoesBeforePortTooMany: a port that a claim has too many is deleted after its pair, too,
// and another look does not put the pair back meanwhile. The pair of the port that stays is left.
func TestPairGoesBeforePortTooMany(t *testing.T) {
	c := &cloud{ours: []neutron.Port{ourPort("a", "ua", pairA.Addr, macA), ourPort("b", "ua", pairB.Addr, macB)}, servers: nodesPort()}
	p, _ := newPorts(t, c, pairsPool(), virtual("vm", machine), claimOf("ua", "10.9.0.5/24", `{"id":"a","mac":"`+macA+`","network":"net"}`), podOn("team", "ua", "vm"), useOf("ua", "vm"))
	look := func() {
		t.Helper()
		if _, bad, err := p.allow(t.Context(), c, pairsPool()); err != nil || !bad.None() {
			t.Fatal(bad, err)
		}
	}
	look() // nobody has told yet which port stays
	p.surplus["b"] = "ua"
	j, _ := p.take(time.Now())
	look()
	p.do(t.Context(), j)
	look()
	if got := c.pairs(); !slices.Equal(got, []neutron.Pair{pairA}) || len(c.ours) != 1 {
		t.Errorf("there are ports %v, and the node's port allows %v; want a alone, and %v", c.ours, got, pairA)
	}
}

// TestPairsAwaitNetwork: a pool whose network is not known yet is looked at again by itself: no
// event tells when it is.
func TestPairsAwaitNetwork(t *testing.T) {
	pool := pairsPool()
	pool.Status.Neutron = nil
	p, kc := newPorts(t, &cloud{}, pool)
	r := &Pairs{Ports: p, Write: kc}
	next, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: pool.Name}})
	if err != nil || next.RequeueAfter <= 0 {
		t.Errorf("it is looked at again after %v, %v; want a time", next.RequeueAfter, err)
	}
}
