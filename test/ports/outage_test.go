package ports_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"testing"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/test/fleet"
	"github.com/tenure-ipam/tenure/test/neutron"
)

// testAway: while Neutron does not answer, who has addresses keeps them, and who has none waits
// with the reason. Afterwards nothing is there twice, and nothing is left.
func testAway(t *testing.T, w *world) {
	_, ids := w.subnets(t, neutron.Subnet{CIDR: "10.9.0.0/24"})
	p := pool(t, ids...)
	kept, ends := claim(t, p, ""), claim(t, p, "")
	w.only(t, kept)
	w.only(t, ends)
	if err := w.Kill(); err != nil {
		t.Fatal(err)
	}
	late := claim(t, p, "")
	fleet.Delete(t, kc, ends)
	condition(t, p, v1alpha1.PoolSourceReady, metav1.ConditionFalse, "Unavailable", "no answer")
	fleet.Eventually(t, time.Minute, func() error { return waitsNow(t, late, "Unavailable", "no answer") })
	if err := allocatedNow(t, kept); err != nil {
		t.Error(err)
	}
	w.Start(t)
	fleet.Eventually(t, time.Minute, func() error { return allocatedNow(t, late) })
	w.only(t, late)
	w.only(t, kept)
	w.portless(t, ends)
	condition(t, p, v1alpha1.PoolSourceReady, metav1.ConditionTrue, v1alpha1.ReasonFollowed, "")
}

// testQuota: a quota that is used up is a reason at claim and pool.
func testQuota(t *testing.T, w *world) {
	_, ids := w.subnets(t, neutron.Subnet{CIDR: "10.9.0.0/24"})
	p := pool(t, ids...)
	first := claim(t, p, "")
	w.only(t, first)
	w.Quota(t, neutron.Admin, 1)
	late := claim(t, p, "")
	waits(t, late, "QuotaExceeded", "port")
	condition(t, p, v1alpha1.PoolSourceReady, metav1.ConditionFalse, "QuotaExceeded", "")
	w.Quota(t, neutron.Admin, -1)
	fleet.Eventually(t, time.Minute, func() error { return allocatedNow(t, late) })
	w.only(t, late)
}

// testCrashes (K4): Neutron and the controller are killed, frozen and restarted while claims come
// and go. In the end each claim has one port with its addresses, no two have one address, and
// Neutron has no port more.
func testCrashes(t *testing.T, w *world) {
	_, ids := w.subnets(t, neutron.Subnet{CIDR: "10.9.0.0/24"}, neutron.Subnet{CIDR: "fd00:9::/64", IPVersion: 6})
	p := pool(t, ids...)
	var stay, gone []*ipamclaims.IPAMClaim
	faults := []func(){
		func() { w.end(t); w.start(t) },
		func() { must(t, w.Kill()); w.Start(t) },
		func() { must(t, w.Pause()); time.Sleep(300 * time.Millisecond); must(t, w.Resume()) },
		func() { must(t, w.Kill()); w.end(t); w.Start(t); w.start(t) },
	}
	for round := range 4 {
		for i := range 6 {
			c := claim(t, p, "")
			if i%3 == 0 {
				gone = append(gone, c)
			} else {
				stay = append(stay, c)
			}
		}
		time.Sleep(time.Duration(round) * 60 * time.Millisecond) // another moment each time
		faults[round%len(faults)]()
		for _, c := range gone {
			fleet.Delete(t, kc, c)
		}
		gone = nil
	}
	seen := map[netip.Addr]string{}
	for _, c := range stay {
		fleet.Eventually(t, 2*time.Minute, func() error { return allocatedNow(t, c) })
		w.only(t, c)
		addrs, _ := w.allocated(t, c)
		for _, a := range addrs {
			if other := seen[a]; other != "" {
				t.Errorf("%v is claim %s's and claim %s's", a, other, c.Name)
			}
			seen[a] = c.Name
		}
	}
	fleet.Eventually(t, time.Minute, func() error {
		if all := w.ours(t, ""); len(all) != len(stay) {
			return fmt.Errorf("Neutron has ports %v for %d claims", all, len(stay))
		}
		return nil
	})
}

// testLoad: claims that come at once take hardly longer than their ports alone, made by the same
// client. It reports, and does not gate. TENURE_PORTS says how many there are.
func testLoad(t *testing.T, w *world) {
	n, err := strconv.Atoi(os.Getenv("TENURE_PORTS"))
	if err != nil {
		t.Skip("it measures: run it with TENURE_PORTS=200")
	}
	w.end(t) // and another that looks as seldom as one in production
	w.every = time.Minute
	w.start(t)
	_, ids := w.subnets(t, neutron.Subnet{CIDR: "10.9.0.0/22"})
	p := pool(t, ids...)
	alone := w.portsAlone(t, ids[0], n)
	var all []*ipamclaims.IPAMClaim
	for range n {
		all = append(all, newClaim(p, ""))
	}
	begun := time.Now()
	errs := make(chan error, n)
	for _, c := range all {
		go func() { errs <- kc.Create(t.Context(), c) }()
	}
	for range n {
		must(t, <-errs)
	}
	for _, c := range all {
		fleet.Eventually(t, 5*time.Minute, func() error { return allocatedNow(t, c) })
	}
	took := time.Since(begun)
	t.Logf("%d claims took %v, their ports alone %v: ratio %.2f", n, took.Round(time.Millisecond), alone.Round(time.Millisecond), float64(took)/float64(alone))
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}
