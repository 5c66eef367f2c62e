package claims

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/ipam/access"
	"github.com/tenure-ipam/tenure/ipam/controller/networks"
)

// TestAdmission shows that nothing is asked for before it is known that the namespace may
// have it, that nothing is shown which was granted by an older word, and that no rule takes
// from a claim (I3) what it has been shown: neither when its lease is lost, nor when
// somebody empties its status, nor when its pool is closed or away meanwhile.
func TestAdmission(t *testing.T) {
	may := &admission{}
	denied := &admission{err: &access.DeniedError{Namespace: "ns", Pool: "p", Rule: "a rule"}}
	unknown := func(ago time.Duration) *admission {
		return &admission{err: &access.UnknownError{Namespace: "ns", Pool: "p", Rule: "a rule", Cause: errors.New("away")}, since: noon.Add(-ago)}
	}
	missing := func(ago time.Duration) *admission {
		return &admission{err: &access.MissingError{Pool: "p"}, since: noon.Add(-ago)}
	}
	refused := fresh().with(metav1.ConditionFalse, ReasonPoolNotAllowed, denied.err.Error())
	waited := fresh().with(metav1.ConditionFalse, ReasonPoolNotReady, "closed")
	had := func(reason string) claim { return shows("10.0.0.7/24").with(metav1.ConditionFalse, reason, "no room") }
	tests := []struct {
		name string
		seen seen
		want string
	}{
		{"before it asks", seen{claim: fresh(), network: known()}, "admit"},
		{"admitted", seen{claim: fresh(), network: known(), admission: may}, "ask"},
		{"denied", seen{claim: fresh(), network: known(), admission: denied}, "withdraw, write PoolNotAllowed [], event, after 15s"},
		{"still denied", seen{claim: refused, network: known(), admission: denied}, "withdraw, after 15s"},
		{"admitted at last", seen{claim: refused, network: known(), admission: may}, "ask"},
		{"denied, and granted after it was told so", seen{claim: refused, network: known(), admission: denied, held: held("10.0.0.5")},
			"withdraw, give back 10.0.0.5, write PoolNotAllowed [], after 15s"},
		{"not known for a moment", seen{claim: fresh(), network: known(), admission: unknown(time.Second)}, "after 2s"},
		{"not known", seen{claim: fresh(), network: known(), admission: unknown(reportDelay)}, "write PoolAccessUnknown [], event, after 15s"},
		{"denied, and not known any more", seen{claim: refused, network: known(), admission: unknown(time.Second)}, "after 2s"},
		{"has its addresses: nobody is asked", seen{claim: shows("10.0.0.5/24").happy(), held: held("10.0.0.5"), network: known()}, "nothing"},
		{"written by hand, before it asks", seen{claim: shows("10.0.0.7/24"), network: known()}, "admit"},
		{"written by hand, denied", seen{claim: shows("10.0.0.7/24"), network: known(), admission: denied}, "withdraw, write PoolNotAllowed [10.0.0.7/24], event, after 15s"},
		{"written by hand into one that was denied", seen{claim: had(ReasonPoolNotAllowed), network: known()}, "admit"},
		{"written by hand into one of which it is not known", seen{claim: had(ReasonAccessUnknown), network: known()}, "admit"},
		{"no address, written by hand", seen{claim: shows("many"), network: known()}, "admit"},

		{"no pool for a moment", seen{claim: fresh(), network: known(), admission: missing(time.Second)}, "withdraw, after 2s"},
		{"no pool", seen{claim: fresh(), network: known(), admission: missing(reportDelay)}, "withdraw, write PoolNotFound [], event, after 15s"},
		{"no pool, and written by hand", seen{claim: shows("10.0.0.7/24"), network: known(), admission: missing(reportDelay)},
			"withdraw, write PoolAccessUnknown [10.0.0.7/24], event, after 15s"},

		{"granted, and not shown yet", seen{claim: fresh(), network: known(), held: held("10.0.0.5")}, "admit"},
		{"granted after it waited", seen{claim: waited, network: known(), held: held("10.0.0.5")}, "admit"},
		{"granted after it waited, admitted", seen{claim: waited, network: known(), held: held("10.0.0.5"), admission: may}, "ask"},
		{"granted after it waited, denied by then", seen{claim: waited, network: known(), held: held("10.0.0.5"), admission: denied},
			"withdraw, give back 10.0.0.5, write PoolNotAllowed [], event, after 15s"},
		{"granted after it waited, and it is not known", seen{claim: waited, network: known(), held: held("10.0.0.5"), admission: unknown(time.Second)}, "after 2s"},
		{"I3 the lease is lost", seen{claim: shows("10.0.0.7/24").happy(), network: known()}, "ask for 10.0.0.7"},
		{"I3 the lease is lost, its pool closed", seen{claim: had(ReasonPoolNotReady), network: known()}, "ask for 10.0.0.7"},
		{"I3 the lease is lost, its pool gone", seen{claim: had(ReasonPoolNotFound), network: known()}, "ask for 10.0.0.7"},
		{"I3 the lease is lost, calls failed", seen{claim: had(ReasonInternalError), network: known()}, "ask for 10.0.0.7"},
		{"I3 the lease is lost, another had the address", seen{claim: had(ReasonConflict), network: known()}, "ask for 10.0.0.7"},
		{"I3 part of it was lost", seen{claim: shows("10.0.0.7/24", "fd00::7/64").happy(), held: held("10.0.0.7"), network: known()}, "ask for 10.0.0.7, fd00::7"},
		{"I3 the status was emptied", seen{claim: fresh().happy(), held: held("10.0.0.7"), network: known()}, "ask"},
		{"I3 the status was emptied after a conflict", seen{claim: fresh().with(metav1.ConditionFalse, ReasonConflict, "x"), held: held("10.0.0.7"), network: known()}, "ask"},
		{"I3 the status was emptied, reason and all, under a pod", seen{claim: fresh(), held: held("10.0.0.7"), uses: []use{{pod: "a"}}, network: known()}, "ask"},
		{"I3 the status was emptied, and the network is faulty", seen{claim: fresh().happy(), held: held("10.0.0.7"), network: verdict(networks.Faulty)}, "withdraw, write IPAddressConflict [], event"},
		{"I3 the status was emptied, and the network is ambiguous", seen{claim: fresh().happy(), held: held("10.0.0.7"), network: verdict(networks.Ambiguous)}, "withdraw, write IPAddressConflict [], event"},
		{"the status was emptied, and nothing is left", seen{claim: fresh().happy(), network: known()}, "admit"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.seen.now = noon
			if got := decide(tt.seen).in(); got != tt.want {
				t.Errorf("got %s; want %s", got, tt.want)
			}
		})
	}
}
