package agent

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"sync"
	"testing"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/cniresults"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// nodePods are the pods of a node.
type nodePods struct {
	Pods
	pods []Pod
}

func (n *nodePods) PodsOfNode(context.Context, protocol.NodeName) ([]Pod, error) { return n.pods, nil }

// TestFrozenUseOutlivesADEL: a use of a lost store's time is not given back by the DEL of
// the one sandbox that was read back: another may have the claim's address (I3). It goes
// when nothing of that time runs any more (I4).
func TestFrozenUseOutlivesADEL(t *testing.T) {
	a := newRestoredAgent(t)
	a.cfg.Boot = "boot1"
	subs, pods := &subLeasesThatGo{}, &nodePods{}
	a.cl.SubLeases, a.cl.Pods, a.host = carefulSubLeases{subs, a.rights}, pods, goneHost{}
	var running sync.WaitGroup
	a.queue = func(task func(context.Context)) { running.Go(func() { task(t.Context()) }) }
	pod := protocol.PodRef{Namespace: "ns", Name: "db-0", UID: "p"}
	ref := protocol.ClaimRef{Namespace: "ns", Name: "db", UID: "c"}
	r := protocol.FrozenSubLease(protocol.SubLease{
		Meta: protocol.Meta{Name: protocol.UseName("c", 0), UID: "u", Revision: "7"}, Node: "n1", Store: "lost", Term: 1, Writes: 1,
		Use: &protocol.Use{Claim: ref, Pod: pod, Interface: "net1"},
	})
	key := store.Key{Network: "lan", ContainerID: "sandbox", IfName: "net1"}
	err := a.st.Update(t.Context(), func(tx *store.Tx) error {
		att := store.Attachment{
			Key: key, Pod: pod, Boot: "boot1", Claim: &ref, Use: r.Name,
			Addresses: []store.Address{{Addr: netip.MustParseAddr("10.0.0.5"), Bits: 24, Pool: "lan"}},
		}
		return errors.Join(tx.PutRight(r), tx.PutLost(store.Lost{Store: "lost", Boot: "boot1", Pods: []protocol.PodRef{pod}}), tx.PutAttachment(att))
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.attachments.release(t.Context(), key, 0); err != nil {
		t.Fatal(err)
	}
	running.Wait()
	pods.pods = []Pod{{PodRef: pod}}
	a.losses.thaw(t.Context())
	if _, known := a.right(r.Name); !known || subs.deleted {
		t.Errorf("while the pod runs the use is deleted: %v, recorded: %v; want it kept", subs.deleted, known)
	}
	pods.pods = nil
	a.losses.thaw(t.Context())
	if _, known := a.right(r.Name); known || !subs.deleted {
		t.Errorf("when nothing of its time runs the use is deleted: %v, recorded: %v; want it given back", subs.deleted, known)
	}
}

// TestLostStoreNotReadBack: an agent that has taken its registration after its store was lost, and
// ends before it has read back what its pods have, gives out nothing either when it is
// started again in that boot: a repeated ADD of a running pod would get another address
// (C10). In another boot nothing of that time runs.
func TestLostStoreNotReadBack(t *testing.T) {
	start := func(st *store.Store, boot string) *Agent {
		a := newRestoredAgent(t)
		a.st, a.cfg.Boot, a.cfg.Machine = st, boot, "m"
		if err := a.resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		return a
	}
	st := newStore(t)
	a := start(st, "boot1")
	registrar := protocol.Registrar{
		Self: protocol.Identity{Node: "n1", Store: st.ID(), Machine: "m", Boot: "boot1"}, Term: 4,
		Seen: protocol.Registration{Former: []protocol.Former{{Store: "lost", Machine: "m", Boot: "boot1"}}},
	}
	beat := func(a *Agent, had int64) {
		t.Helper()
		if err := a.reg.accept(t.Context(), had, a.reg.era().rewinds, registrar); err != nil {
			t.Fatal(err)
		}
	}
	serves := func(when string, a *Agent, want bool) {
		t.Helper()
		if ok, why := a.reg.serving(); ok != want {
			t.Errorf("%s: serving: %v (%s); want %v", when, ok, why, want)
		}
	}
	beat(a, 0)
	serves("before the first list", a, false)
	a = start(st, "boot1")
	serves("started again", a, false)
	beat(a, 4)
	serves("after its first heartbeat", start(st, "boot1"), false)
	a.cl.Leases, a.cl.SubLeases = &fullLeases{}, noSubLeases{}
	if err := a.losses.compareOwn(t.Context()); err != nil {
		t.Fatal(err)
	}
	serves("after the list", a, true)
	beat(a, 4)
	serves("started again after that", start(st, "boot1"), true)
}

// TestStaticPodStillRuns: a static pod of a lost store's time runs on under another mirror,
// which has another UID, and what the lost store held stays frozen.
func TestStaticPodStillRuns(t *testing.T) {
	a := newRestoredAgent(t)
	a.cfg.Boot, a.host = "boot1", emptyHost{}
	mirror := func(uid, of protocol.UID) *nodePods {
		return &nodePods{pods: []Pod{{PodRef: protocol.PodRef{Namespace: "ns", Name: "static-n1", UID: uid}, MirrorOf: of}}}
	}
	a.cl.Pods = mirror("m1", "runtime")
	lost, err := a.losses.moment(t.Context(), protocol.Former{Store: "lost", Boot: "boot1"})
	if err != nil {
		t.Fatal(err)
	}
	before := lost // as an agent noted it that went by the mirror
	before.Pods = []protocol.PodRef{{Namespace: "ns", Name: "static-n1", UID: "m1"}}
	for _, tt := range []struct {
		name string
		lost store.Lost
		pods *nodePods
		runs bool
	}{
		{"the same mirror", lost, mirror("m1", "runtime"), true},
		{"another mirror", lost, mirror("m2", "runtime"), true},
		{"another pod of its name", lost, mirror("m2", "another"), false},
		{"the same mirror, by which it was noted", before, mirror("m1", "runtime"), true},
	} {
		a.cl.Pods = tt.pods
		if what, err := a.losses.stillRuns(t.Context(), tt.lost); err != nil || (what != "") != tt.runs {
			t.Errorf("%s: %q still runs, %v; want that something does: %v", tt.name, what, err, tt.runs)
		}
	}
}

// TestReadBackWhole: the attachment of a lost store with an address of each of two pools is not
// recorded while one of them is not there, and is with both addresses at the first list after
// that, though that pool gives no addresses (C10).
func TestReadBackWhole(t *testing.T) {
	a := newRestoredAgent(t)
	a.cfg.Boot, a.reg.readFor = "boot1", map[protocol.StoreID]bool{}
	a.cl.Pools, a.cl.Pods = readPools{}, &nodePods{}
	pod := protocol.PodRef{Namespace: "ns", Name: "db-0", UID: "p"}
	a.host = cachedHost{entries: []cniresults.Entry{{
		Network: "net", ContainerID: "c1", IfName: "net1", Args: "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=db-0;K8S_POD_UID=p",
		IPAM: []json.RawMessage{json.RawMessage(`{"cniVersion":"1.1.0","name":"net","type":"bridge","ipam":{"type":"tenure","pools":["lan","lan6"]}}`)},
		IPs:  []cniresults.IP{{Address: netip.MustParsePrefix("10.0.0.5/24")}, {Address: netip.MustParsePrefix("fd00::5/64")}},
	}}}
	use := protocol.SubLease{
		Meta: protocol.Meta{Name: protocol.UseName("c", 0), UID: "u", Revision: "7"}, Node: "n1", Store: "lost", Term: 1, Writes: 1,
		Use: &protocol.Use{Claim: protocol.ClaimRef{Namespace: "ns", Name: "db", UID: "c"}, Pod: pod, Interface: "net1"},
	}
	err := a.st.Update(t.Context(), func(tx *store.Tx) error { return tx.PutRight(protocol.FrozenSubLease(use)) })
	if err != nil {
		t.Fatal(err)
	}
	list := func() (addrs []netip.Addr) {
		t.Helper()
		if err := a.losses.freeze(t.Context(), protocol.Former{Store: "lost", Boot: "boot1"}, &remains{subs: []protocol.SubLease{use}}); err != nil {
			t.Fatal(err)
		}
		err := a.st.View(func(tx *store.Tx) error {
			att, _, err := tx.Attachment(store.Key{Network: "net", ContainerID: "c1", IfName: "net1"})
			for _, x := range att.Addresses {
				addrs = append(addrs, x.Addr)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return addrs
	}
	know := func(name protocol.PoolName, prefix string) {
		shape, err := allocator.NewShape([]allocator.Range{{Prefix: netip.MustParsePrefix(prefix)}})
		if err != nil {
			t.Fatal(err)
		}
		a.pools.get(name).set(&knownPool{Pool: Pool{Stopped: true}, shape: shape, whole: shape}, false)
	}
	know("lan", "10.0.0.0/24")
	a.pools.get("lan6").set(nil, true)
	if got := list(); got != nil {
		t.Errorf("while lan6 is not there, %v are recorded; want nothing", got)
	}
	know("lan6", "fd00::/64")
	if got := list(); len(got) != 2 {
		t.Errorf("when lan6 is there, %v are recorded; want both addresses", got)
	}
}

// cachedHost is a host on which the CNI library has kept results.
type cachedHost struct {
	emptyHost
	entries []cniresults.Entry
}

func (h cachedHost) Cached() ([]cniresults.Entry, []*cniresults.FileError, error) {
	return h.entries, nil, nil
}

// emptyHost is a host without network namespaces.
type emptyHost struct{ Host }

func (emptyHost) Netns() ([]store.Netns, error) { return nil, nil }
