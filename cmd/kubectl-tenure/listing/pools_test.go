package listing

import (
	"bytes"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/screen"
)

// One pool is described whole, as people read it.
func TestDescribesAPool(t *testing.T) {
	p := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "lan"}, Spec: v1alpha1.IPPoolSpec{
		Domain: "vlan-7", TakeOver: v1alpha1.TakeOverConfirmed, Access: v1alpha1.AccessRBAC,
		NamespaceSelector: &v1alpha1.LabelSelector{MatchLabels: map[string]v1alpha1.LabelValue{"team": "red"}},
		Ranges:            []v1alpha1.Range{{CIDR: "10.0.0.0/24", Gateway: "10.0.0.1", Exclude: []string{"10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"}}},
	}}
	p.Status = v1alpha1.IPPoolStatus{
		Leasing: v1alpha1.LeasingOpen, Pressure: v1alpha1.PressureHigh,
		Counts:     &v1alpha1.PoolCounts{Capacity: 200, Used: 40, Claimed: 10, Free: 140, Unreachable: 10, Leases: 3},
		Conditions: []metav1.Condition{{Type: v1alpha1.PoolReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonOpen, Message: "blocks may be leased"}},
	}
	view := viewPool(p)
	view.Holders = []holderView{
		{Leases: 1, Used: 4, Free: 12, Granted: 4},
		{Node: "node-7", Leases: 2, Used: 36, Free: 10, Ceded: 2, Unreachable: 10, Why: []string{"no agent is registered", "frozen"}},
	}
	var out bytes.Buffer
	writePool(screen.Of(&out), p, view)
	const want = `Pool          lan
Domain        vlan-7
Take-over     Confirmed
Used by       namespaces with team=red, if RBAC allows it the verb use on the pool
Leasing       Open
Pressure      High
Usage         30%  40 used, 10 claimed, 140 free, 10 unreachable, of 200; as of two minutes ago, or later

Ranges
CIDR          START   END   GATEWAY    EXCLUDE                                          STATIC-ONLY
10.0.0.0/24   -       -     10.0.0.1   10.0.0.2, 10.0.0.3, 10.0.0.4, 10.0.0.5, 1 more   -

Conditions
Ready         True (Open): blocks may be leased

Leases
HOLDER        LEASES   USED   FREE   CEDED   GRANTED   UNREACHABLE   WHY
the cluster   1        4      12     0       4         0             -
node-7        2        36     10     2       0         10            no agent is registered; frozen
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestMany(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 254: "254", math.MaxInt64 - 1: "9223372036854775806", math.MaxInt64: ">2^63"} {
		if got := many(n); got != want {
			t.Errorf("many(%d) = %q; want %q", n, got, want)
		}
	}
}

// A pool is exhausted for people when no address of it is free, not when all blocks are leased.
func TestPressure(t *testing.T) {
	tests := []struct {
		name   string
		status v1alpha1.Pressure
		full   metav1.ConditionStatus
		want   v1alpha1.Pressure
	}{
		{"no address is free", v1alpha1.PressureExhausted, metav1.ConditionTrue, v1alpha1.PressureExhausted},
		{"addresses are free in blocks of nodes", v1alpha1.PressureExhausted, metav1.ConditionFalse, v1alpha1.PressureHigh},
		{"a controller that says nothing of it", v1alpha1.PressureExhausted, "", v1alpha1.PressureExhausted},
		{"few blocks are left", v1alpha1.PressureHigh, metav1.ConditionFalse, v1alpha1.PressureHigh},
		{"many are", v1alpha1.PressureLow, metav1.ConditionFalse, v1alpha1.PressureLow},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := &v1alpha1.IPPool{Status: v1alpha1.IPPoolStatus{Pressure: tt.status}}
			if tt.full != "" {
				p.Status.Conditions = []metav1.Condition{{Type: v1alpha1.PoolExhausted, Status: tt.full}}
			}
			if got := pressure(p); got != tt.want {
				t.Errorf("pressure %q; want %q", got, tt.want)
			}
		})
	}
}

// TestOverlapIsInTheTable: a pool that is ready and shares addresses is shown so.
func TestOverlapIsInTheTable(t *testing.T) {
	is := func(kind string, status metav1.ConditionStatus) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: "R"}
	}
	for _, tt := range []struct {
		all  []metav1.Condition
		want string
	}{
		{[]metav1.Condition{is(v1alpha1.PoolReady, metav1.ConditionTrue), is(v1alpha1.PoolOverlapping, metav1.ConditionFalse)}, "True"},
		{[]metav1.Condition{is(v1alpha1.PoolReady, metav1.ConditionTrue), is(v1alpha1.PoolOverlapping, metav1.ConditionTrue)}, "True (Overlapping)"},
		{[]metav1.Condition{is(v1alpha1.PoolReady, metav1.ConditionFalse), is(v1alpha1.PoolOverlapping, metav1.ConditionTrue)}, "False (R)"},
	} {
		if got := readyCell(tt.all).Text; got != tt.want {
			t.Errorf("%q; want %q", got, tt.want)
		}
	}
}

func TestPercent(t *testing.T) {
	for _, tt := range []struct {
		taken, whole int64
		want         string
	}{{0, 0, "-"}, {0, 1000, "0%"}, {1, 1000, "1%"}, {999, 1000, "99%"}, {1000, 1000, "100%"}} {
		if got := percent(tt.taken, tt.whole); got != tt.want {
			t.Errorf("percent(%d, %d) is %q; want %q", tt.taken, tt.whole, got, tt.want)
		}
	}
}
