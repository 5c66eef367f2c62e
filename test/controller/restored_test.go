package controller_test

import (
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coordination "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/tenure-controller/controller"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/test/proof"
)

// beating is an agent's side of a registration: it beats, and says what it is told to of a
// restored API server.
type beating struct{ says atomic.Value }

// beats has an agent of this F beat until the test ends.
func beats(t *testing.T, node string, fence time.Duration) *beating {
	reg := registered(t, node)
	b := &beating{}
	b.says.Store("")
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			if now, out, _ := api.ReadRegistration(t.Context(), reg.Node); out == protocol.Done {
				now.Fence, now.Beat, now.Restored = fence, time.Now(), b.says.Load().(string)
				now.Writes++
				_, _, _ = api.UpdateRegistration(t.Context(), now) // the next one comes soon
			}
			select {
			case <-done:
				return
			case <-time.After(300 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() { close(done); <-ended })
	return b
}

// withoutRegistrations removes what agents of other tests have left: who is registered and is
// silent is waited for when pools are to open again.
func withoutRegistrations(t *testing.T) {
	t.Helper()
	var leases coordination.LeaseList
	if err := kc.List(t.Context(), &leases, client.InNamespace(kube.DefaultRegistrationNamespace)); err != nil {
		t.Fatal(err)
	}
	for i := range leases.Items {
		if !kube.IsRegistration(&leases.Items[i]) {
			continue
		}
		s, err := kube.RegistrationOf(&leases.Items[i])
		if err != nil {
			t.Fatal(err)
		}
		if out, err := api.DeleteRegistration(t.Context(), s.Meta); out != protocol.Done && out != protocol.NotFound {
			t.Fatalf("remove registration %s: %v %v", s.Name, out, err)
		}
	}
}

// reopened returns a check that a pool is open by a word greater than this one.
func reopened(p *v1alpha1.IPPool, word string) func() error {
	return func() error {
		if err := isReady(p, metav1.ConditionTrue, v1alpha1.ReasonOpen)(); err != nil {
			return err
		}
		if p.Status.Leasing != v1alpha1.LeasingOpen || p.Status.Opening <= word {
			return fmt.Errorf("pool %s: leasing %s by %q; want Open by a later word than %q", p.Name, p.Status.Leasing, p.Status.Opening, word)
		}
		return nil
	}
}

// TestRestored: an agent that has seen the API server go back has every pool
// closed. Nothing is granted or freed before it is back, also by another leader;
// and what it still says then does not close the pools again.
func TestRestored(t *testing.T) {
	proof.Only(t)
	const fence = 10 * time.Second
	withoutRegistrations(t)
	stop := start(t)
	ns := namespace(t)
	p, other := pool(t, "10.0.0.0/24"), pool(t, "10.1.0.0/24")
	definition(t, ns, "lan", "lan", ofPool(p.Name))
	opened(t, p)
	opened(t, other)
	word := max(p.Status.Opening, other.Status.Opening)
	old := claim(t, ns, "old", "lan")
	allocated(t, old)
	node := beats(t, "restored-1", fence)
	registered(t, "restored-2")
	amend(t, "restored-2", func(s *protocol.Registration) { s.Fence = time.Second })

	node.says.Store(protocol.Restoration{Epoch: word}.String())
	closed := func(p *v1alpha1.IPPool) func() error {
		return isReady(p, metav1.ConditionFalse, v1alpha1.ReasonRestored, "went back in time")
	}
	eventually(t, 10*time.Second, closed(p))
	eventually(t, 10*time.Second, closed(other))
	fresh := claim(t, ns, "fresh", "lan")
	failed(t, fresh, "PoolNotReady", p.Name)
	remove(t, old)
	always(t, time.Second, func() error {
		if a := granted(t, uidOf(old)); len(a) != 1 {
			return fmt.Errorf("the deleted claim has %v granted; want what it had", a)
		}
		return closed(p)()
	})

	// Another leader: it counts anew, and does not open too early.
	stop()
	stop = start(t)
	always(t, 2*time.Second, closed(p))
	eventually(t, 10*time.Second, isReady(p, metav1.ConditionFalse, v1alpha1.ReasonRestored, "restored-1"))
	node.says.Store(protocol.Restoration{Back: true, Epoch: word}.String())
	eventually(t, 3*fence, reopened(p, word)) // F/2 after the second leader has seen it closed
	eventually(t, 3*fence, reopened(other, word))
	allocated(t, fresh)
	freed(t, uidOf(old), 15*time.Second)

	// The node has not heard of it yet: nobody minds, and a third leader neither.
	now := p.Status.Opening
	same := func() error {
		if err := isReady(p, metav1.ConditionTrue, v1alpha1.ReasonOpen)(); err != nil {
			return err
		}
		if p.Status.Opening != now {
			return fmt.Errorf("opened again, by %q", p.Status.Opening)
		}
		return nil
	}
	always(t, time.Second, same)
	stop()
	start(t)
	always(t, 2*time.Second, same)
	late := pool(t, "10.2.0.0/24") // and a new pool opens at once
	opened(t, late)
}

// TestRevisionGoesBack: the controller itself sees that etcd was restored: it
// closes every pool and ends, for its caches are of no use. The next one opens none
// before F has passed with a node that says nothing.
func TestRevisionGoesBack(t *testing.T) {
	const fence = 12 * time.Second
	withoutRegistrations(t)
	p := pool(t, "10.0.0.0/24")
	beats(t, "rewound-1", fence)
	ended := make(chan error, 1)
	c, err := controller.New(quick(), role, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	go func() { ended <- c.Run(t.Context()) }()
	opened(t, p)
	word := p.Status.Opening
	snapshot, err := cp.SnapshotEtcd()
	if err != nil {
		t.Fatal(err)
	}
	ns := namespace(t)
	parallel(t, 800, func(i int) error {
		return kc.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprint("c", i)}})
	})
	lost := pool(t, "10.1.0.0/24")
	opened(t, lost)
	if err := cp.RestoreEtcd(t.Context(), snapshot); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "went back in time") {
		t.Fatalf("the controller ends with %v; want that the data went back in time", err)
	}
	if err := isReady(p, metav1.ConditionFalse, v1alpha1.ReasonRestored, "went back in time")(); err != nil {
		t.Fatal(err)
	}
	closed := time.Now()
	start(t) // as the kubelet does
	eventually(t, 2*fence, reopened(p, word))
	if took := time.Since(closed); took < fence/2 {
		t.Errorf("opened after %v with a node that said nothing; want about %v", took, fence)
	}
}
