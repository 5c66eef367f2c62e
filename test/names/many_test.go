package names_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenure-ipam/tenure/test/fleet"
)

// TestMany: what is written for 1,000 pods follows what has changed of them, not how many of them
// were looked at.
func TestMany(t *testing.T) {
	const pods = 1000
	definition(t, team, "many")
	all := make([]*corev1.Pod, pods)
	each := func(do func(i int)) {
		var group sync.WaitGroup
		for worker := range 10 {
			group.Go(func() {
				for i := worker; i < pods; i += 10 {
					do(i)
				}
			})
		}
		group.Wait()
	}
	each(func(i int) {
		addrs := []string{fmt.Sprintf("10.20.%d.%d", i/250, 1+i%250), fmt.Sprintf("fd00:20::%x", 1+i)}
		all[i] = pod{fmt.Sprintf("many-%d", i), "many", "", "many", "team/many", addrs, true, nil}.make(t)
	})
	service(t, "many", "many", "many")
	shown := func() (endpoints, ready int, written int64) {
		for _, s := range slicesOf(t, "many") {
			if len(s.Endpoints) > 100 {
				t.Errorf("slice %s has %d endpoints; want 100 at most", s.Name, len(s.Endpoints))
			}
			written += s.Generation // the API server counts its writes
			for _, e := range s.Endpoints {
				endpoints++
				if *e.Conditions.Ready {
					ready++
				}
			}
		}
		return endpoints, ready, written
	}
	await := func(wantReady int) (written int64) {
		t.Helper()
		fleet.Eventually(t, within, func() error {
			var endpoints, ready int
			if endpoints, ready, written = shown(); endpoints != 2*pods || ready != 2*wantReady {
				return fmt.Errorf("%d endpoints, %d of them ready; want %d and %d", endpoints, ready, 2*pods, 2*wantReady)
			}
			return nil
		})
		return written
	}
	before := await(pods)
	t.Logf("%d slices were written in %d calls", len(slicesOf(t, "many")), before)
	if before > 40 { // ten slices of each family, and maybe once more for pods that the cache did not have yet
		t.Errorf("%d pods that were there cost %d calls; want 20 or a few more", pods, before)
	}
	// Nothing of this decides about a slice. The last change does, and is seen after all others.
	each(func(i int) {
		setReady(t, all[i], true)
		fleet.Edit(t, kc, all[i], func() { all[i].Annotations["example.org/other"] = "x" })
	})
	setReady(t, all[0], false)
	if after := await(pods - 1); after != before+2 {
		t.Errorf("%d changes of pods, of which one decides, cost %d calls; want one for each family", 2*pods+1, after-before)
	}
}

// TestTogether: changes of pods that come together are written together, twice a second at most.
func TestTogether(t *testing.T) {
	const pods = 60
	definition(t, team, "together")
	all, lines := make([]*corev1.Pod, pods), make([]string, pods)
	for i := range all {
		name, addr := fmt.Sprintf("together-%d", i), fmt.Sprintf("10.21.0.%d", 1+i)
		all[i] = pod{name, "together", "", "together", "team/together", []string{addr}, false, nil}.make(t)
		lines[i] = fmt.Sprintf("IPv4 %s %s ready serving", addr, name)
	}
	slices.Sort(lines)
	service(t, "together", "together", "together", onlyIPv4)
	written := func() (sum int64) {
		for _, s := range slicesOf(t, "together") {
			sum += s.Generation
		}
		return sum
	}
	fleet.Eventually(t, within, func() error {
		if all := slicesOf(t, "together"); len(all) != 1 || len(all[0].Endpoints) != pods {
			return fmt.Errorf("%d slices; want one with %d pods", len(all), pods)
		}
		return nil
	})
	before, began := written(), time.Now()
	for _, p := range all {
		setReady(t, p, true)
	}
	publishes(t, "together", lines...)
	cost, took := written()-before, time.Since(began)
	t.Logf("%d pods that became ready within %v were written in %d calls", pods, took.Round(time.Millisecond), cost)
	if most := int64(took/(500*time.Millisecond)) + 2; cost > most { // the first, and one that was begun
		t.Errorf("%d pods that became ready within %v cost %d calls; want %d at most", pods, took, cost, most)
	}
}
