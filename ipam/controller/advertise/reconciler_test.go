package advertise

import (
	"context"
	"log/slog"
	"testing"
	"time"

	coordination "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/controller/pools"
)

// cluster has Ready Nodes with agents, and takes a minute for each write. It keeps none.
type cluster struct {
	client.Client
	*watched
	nodes  []corev1.Node
	writes []string // which objects were written
}

func (c *cluster) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch l := list.(type) {
	case *corev1.NodeList:
		l.Items = c.nodes
	case *coordination.LeaseList:
		for i := range c.nodes {
			l.Items = append(l.Items, coordination.Lease{ObjectMeta: metav1.ObjectMeta{Name: c.nodes[i].Name, Annotations: map[string]string{"tenure.dev/node-uid": "u"}}})
		}
	}
	return nil
}

func (c *cluster) Status() client.SubResourceWriter { return status{cluster: c} }

// status writes the status of objects of a cluster.
type status struct {
	client.SubResourceWriter
	*cluster
}

func (c status) Patch(_ context.Context, o client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
	c.now = c.now.Add(time.Minute)
	c.writes = append(c.writes, o.GetName())
	return nil
}

func (*cluster) Room(context.Context, *v1alpha1.IPPool) (pools.Room, bool, error) {
	return pools.Room{Parts: []pools.PartRoom{{
		Free: map[allocator.Family]int64{allocator.IPv4: 14}, For: func(*corev1.Node) bool { return true },
	}}}, true, nil
}

// TestSettles: however long it takes to write what nodes offer less, others are offered more no
// sooner than the scheduler has had time to see it.
func TestSettles(t *testing.T) {
	c := &cluster{watched: newWatched(t)}
	shows := func(node string, n int64) corev1.Node {
		return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}, Status: corev1.NodeStatus{
			Capacity:   corev1.ResourceList{"tenure.dev/lan": *resource.NewQuantity(n, resource.DecimalSI)},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		}}
	}
	r := &Reconciler{cache: c, write: c, rooms: c, pods: c.Pods, limit: flowcontrol.NewFakeAlwaysRateLimiter(), log: slog.New(slog.DiscardHandler), now: c.Now, looks: map[string]look{}}
	pool := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "lan"}}
	pool.Status.Conditions = []metav1.Condition{*published(pool)}
	pool.Status.Conditions[0].Type = v1alpha1.PoolAdvertised
	look := func(what string, a, b int64, want ...string) {
		t.Helper()
		c.nodes, c.writes = []corev1.Node{shows("a", a), shows("b", b)}, nil
		if _, err := r.publish(t.Context(), pool, r.last("lan")); err != nil {
			t.Fatal(err)
		}
		if len(c.writes) != len(want) || len(want) > 0 && c.writes[0] != want[0] {
			t.Errorf("%s: written are %q; want %q", what, c.writes, want)
		}
	}
	look("one offers all", 14, 0, "a")
	look("right after it has offered less", 7, 0)
	c.now = c.now.Add(settle)
	look("a while later", 7, 0, "b")
}
