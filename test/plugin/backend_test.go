package plugin_test

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/tenured/daemon"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// A backend is who hands out the addresses.
type backend struct {
	name string
	// network returns a network that gives one address of each CIDR, in their
	// order. The gateway is each CIDR's first address.
	network func(t *testing.T, cidrs ...string) *network
}

var backends = []backend{{"local", localNetwork}, {"agent", agentNetwork}}

// eachBackend runs test once with every backend.
func eachBackend(t *testing.T, test func(t *testing.T, b backend)) {
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) { test(t, b) })
	}
}

// localNetwork is a network in local mode. Its store must be consistent when the
// test ends.
func localNetwork(t *testing.T, cidrs ...string) *network {
	t.Helper()
	dir := t.TempDir()
	var sets []any
	for _, c := range cidrs {
		sets = append(sets, []any{map[string]any{"subnet": c}})
	}
	n := newNetwork(t, map[string]any{"mode": "local", "dataDir": dir, "ranges": sets})
	t.Cleanup(func() { checkStores(t, dir) })
	return n
}

func checkStores(t *testing.T, dir string) {
	files, err := filepath.Glob(filepath.Join(dir, "*.db"))
	if err != nil {
		t.Error(err)
	}
	for _, file := range files {
		st, err := store.Open(file, store.Options{ReadOnly: true})
		if err != nil {
			t.Errorf("store after the test: %v", err)
			continue
		}
		if err := st.Check(); err != nil {
			t.Errorf("store inconsistent after the test: %v", err)
		}
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}
}

var poolNumber atomic.Int64

// agentNetwork is a network of named pools on a node of its own. The node's store
// is checked when the test ends.
func agentNetwork(t *testing.T, cidrs ...string) *network {
	t.Helper()
	var pools []string
	for _, c := range cidrs {
		pools = append(pools, openPool(t, c))
	}
	f := fleet.New(t, cp.Config())
	f.Change = func(c *daemon.Config) { c.Agent.Idle = time.Second }
	name := fmt.Sprintf("node-%d", poolNumber.Add(1))
	node := f.Start(name)
	n := newNetwork(t, map[string]any{
		"pools": pools, "socket": node.Config().Socket, "journalDir": node.Config().Agent.JournalDir,
	})
	n.down = node.Stop
	n.up = func() { f.Start(name) }
	return n
}

// openPool makes a pool of cidr and opens it as the controller would.
func openPool(t *testing.T, cidr string) string {
	t.Helper()
	ctx := context.Background()
	p := &v1alpha1.IPPool{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pool-%d", poolNumber.Add(1))},
		Spec: v1alpha1.IPPoolSpec{Ranges: []v1alpha1.Range{{
			CIDR: cidr, Gateway: netip.MustParsePrefix(cidr).Addr().Next().String(),
		}}},
	}
	if err := kc.Create(ctx, p); err != nil {
		t.Fatal(err)
	}
	shape, err := poolspec.ParsePool(kube.PoolText(p))
	if err != nil {
		t.Fatal(err)
	}
	f := shape.Families()[0]
	bits := int32(allocator.BlockBits(shape, f, 0))
	p.Status = v1alpha1.IPPoolStatus{Leasing: v1alpha1.LeasingOpen, BlockPrefixLengths: &v1alpha1.BlockPrefixLengths{}}
	if f == allocator.IPv4 {
		p.Status.BlockPrefixLengths.IPv4 = &bits
	} else {
		p.Status.BlockPrefixLengths.IPv6 = &bits
	}
	if err := kc.Status().Update(ctx, p); err != nil {
		t.Fatal(err)
	}
	return p.Name
}
