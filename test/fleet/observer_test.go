package fleet

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/tenure-ipam/tenure/ipam/agentapi"
)

// recorder keeps what an observer reports.
type recorder struct {
	testing.TB
	said []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.said = append(r.said, fmt.Sprintf(format, args...))
}

func ofPool(sandbox string) Interface {
	return Interface{Network: "lan", Sandbox: sandbox, IfName: "net1", IPAM: map[string]any{"pool": "p"}}
}

func ofClaim(sandbox, claim string) Interface {
	i := ofPool(sandbox)
	i.Top = map[string]any{ClaimKey: claim}
	return i
}

func answer(addr string) *agentapi.Result {
	return &agentapi.Result{IPs: []agentapi.IP{{Address: netip.PrefixFrom(netip.MustParseAddr(addr), 24)}}}
}

func addrs(text string) []netip.Addr { return []netip.Addr{netip.MustParseAddr(text)} }

func TestObserver(t *testing.T) {
	tests := []struct {
		name string
		do   func(o *Observer)
		want string // empty: nothing is reported
	}{
		{"two sandboxes", func(o *Observer) {
			o.added(o.history.Now(), "a", ofPool("c1"), answer("10.0.0.1"))
			o.added(o.history.Now(), "b", ofPool("c2"), answer("10.0.0.1"))
		}, "I1: 10.0.0.1"},
		{"after a DEL", func(o *Observer) {
			o.added(o.history.Now(), "a", ofPool("c1"), answer("10.0.0.1"))
			o.deleting("a", ofPool("c1"))(true)
			o.added(o.history.Now(), "b", ofPool("c2"), answer("10.0.0.1"))
		}, ""},
		{"after a DEL of another", func(o *Observer) {
			o.added(o.history.Now(), "a", ofPool("c1"), answer("10.0.0.1"))
			o.deleting("b", ofPool("c1"))(true)
			o.added(o.history.Now(), "b", ofPool("c2"), answer("10.0.0.1"))
		}, "I1"},
		{"the node is off", func(o *Observer) {
			o.added(o.history.Now(), "a", ofPool("c1"), answer("10.0.0.1"))
			o.Off("a")
			o.added(o.history.Now(), "b", ofPool("c2"), answer("10.0.0.1"))
		}, ""},
		{"another node is off", func(o *Observer) {
			o.added(o.history.Now(), "a", ofPool("c1"), answer("10.0.0.1"))
			o.Off("b")
			o.added(o.history.Now(), "b", ofPool("c2"), answer("10.0.0.1"))
		}, "I1"},
		{"a repeated ADD", func(o *Observer) {
			o.added(o.history.Now(), "a", ofPool("c1"), answer("10.0.0.1"))
			o.added(o.history.Now(), "a", ofPool("c1"), answer("10.0.0.1"))
		}, ""},
		{"a repeated ADD with another answer", func(o *Observer) {
			o.added(o.history.Now(), "a", ofPool("c1"), answer("10.0.0.1"))
			o.added(o.history.Now(), "a", ofPool("c1"), answer("10.0.0.2"))
		}, "I2"},
		{"siblings of one claim", func(o *Observer) {
			o.Claimed("p", "db", addrs("10.0.0.1"))
			o.added(o.history.Now(), "a", ofClaim("c1", "db"), answer("10.0.0.1"))
			o.added(o.history.Now(), "b", ofClaim("c2", "db"), answer("10.0.0.1"))
		}, ""},
		{"a claim's address without a pod", func(o *Observer) {
			o.Claimed("p", "db", addrs("10.0.0.1"))
			o.added(o.history.Now(), "b", ofPool("c2"), answer("10.0.0.1"))
		}, "I1"},
		{"a claim that is gone, its pod is not", func(o *Observer) {
			o.Claimed("p", "db", addrs("10.0.0.1"))
			o.added(o.history.Now(), "a", ofClaim("c1", "db"), answer("10.0.0.1"))
			o.Unclaimed("db")
			o.added(o.history.Now(), "b", ofPool("c2"), answer("10.0.0.1"))
		}, "I1"},
		{"a claim that is gone, and its pod", func(o *Observer) {
			o.Claimed("p", "db", addrs("10.0.0.1"))
			o.added(o.history.Now(), "a", ofClaim("c1", "db"), answer("10.0.0.1"))
			o.deleting("a", ofClaim("c1", "db"))(true)
			o.Unclaimed("db")
			o.added(o.history.Now(), "b", ofPool("c2"), answer("10.0.0.1"))
		}, ""},
		{"a claim's address changes", func(o *Observer) {
			o.Claimed("p", "db", addrs("10.0.0.1"))
			o.added(o.history.Now(), "a", ofClaim("c1", "db"), answer("10.0.0.2"))
		}, "I3"},
		{"what an interface had is void", func(o *Observer) {
			o.added(o.history.Now(), "a", ofPool("c1"), answer("10.0.0.1"))
			o.Void("a", "lan", "c1", "net1")
			o.added(o.history.Now(), "b", ofPool("c2"), answer("10.0.0.1"))
		}, ""},
		{"what another interface had is void", func(o *Observer) {
			o.added(o.history.Now(), "a", ofPool("c1"), answer("10.0.0.1"))
			o.Void("a", "lan", "c2", "net1")
			o.added(o.history.Now(), "b", ofPool("c2"), answer("10.0.0.1"))
		}, "I1"},
		{"a claim that a restore has undone", func(o *Observer) {
			o.Claimed("p", "db", addrs("10.0.0.1"))
			o.Restored(nil)
			o.added(o.history.Now(), "b", ofPool("c2"), answer("10.0.0.1"))
		}, ""},
		{"a claim that a restore has left", func(o *Observer) {
			o.Claimed("p", "db", addrs("10.0.0.1"))
			o.Restored(map[string][]netip.Addr{"db": addrs("10.0.0.1")})
			o.added(o.history.Now(), "b", ofPool("c2"), answer("10.0.0.1"))
		}, "I1"},
		{"a pod of a claim that a restore has undone", func(o *Observer) {
			o.Claimed("p", "db", addrs("10.0.0.1"))
			o.added(o.history.Now(), "a", ofClaim("c1", "db"), answer("10.0.0.1"))
			o.Restored(nil)
			o.added(o.history.Now(), "b", ofPool("c2"), answer("10.0.0.1"))
		}, "I1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := &recorder{TB: t}
			o := newObserver(r)
			tt.do(o)
			said := strings.Join(r.said, "\n")
			if faults := o.history.Faults(); (tt.want == "" || tt.want == "I2") != (len(faults) == 0) {
				t.Errorf("the history's faults are %v; the observer reported %q", faults, said)
			}
			if (tt.want == "") != (said == "") || !strings.Contains(said, tt.want) {
				t.Errorf("reported %q; want %q in it", said, tt.want)
			}
			if tt.want != "" && !strings.Contains(said, "time line of 10.0.0.1") {
				t.Errorf("reported %q; want the time line", said)
			}
		})
	}
}
