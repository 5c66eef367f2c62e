package resolve

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/vif"
	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// vifWorld has a network whose interfaces the control plane decides, and the definition made of it.
func vifWorld() (w *world, made facts.Ref) {
	w = newWorld()
	w.define(netA, "", vif.AnnotationNetwork, `{"pool": "lan"}`)
	made = facts.Ref{Namespace: "tenure-system", Name: vif.DefinitionName("ns", "net-a")}
	w.define(made, "{}")
	return w, made
}

// TestVIFsOfAKnownPod: a pod that has its map is answered without the API server, in whatever
// sandbox.
func TestVIFsOfAKnownPod(t *testing.T) {
	w, _ := vifWorld()
	run(t, w, func(t *testing.T, r *Resolver) {
		r.cfg.VIFs = true
		w.seen(r, withMap(podOf("p", "u1", "net-a"), "u1"))
		synctest.Wait()
		w.took()
		if a := mustAsk(t, r, question("p", "u1")); len(a.VIFs) != 1 || a.VIFs[0].Claim != "c" {
			t.Errorf("%+v", a.VIFs)
		}
		if reads := w.took(); len(reads) > 0 {
			t.Errorf("it was read: %v; want nothing", reads)
		}
	})
}

// withMap returns p with the map of its interface.
func withMap(p Pod, uid string) Pod {
	again := podOf(p.Name, string(p.UID), p.Annotations[networksKey])
	again.Annotations[vif.AnnotationMap] = vif.Map{"net1": {Network: "ns/net-a", Claim: "c", PodUID: uid, MAC: "02:00:00:00:00:01"}}.String()
	return again
}

// TestVIFsAreAnswered (K2, K5, K6): the agent waits for the pod's map, and tells the claim, the
// hardware address and the definition; of another pod's map it believes nothing.
func TestVIFsAreAnswered(t *testing.T) {
	w, made := vifWorld()
	run(t, w, func(t *testing.T, r *Resolver) {
		r.cfg.VIFs = true
		p := podOf("p", "u1", "net-a")
		w.seen(r, withMap(p, "u0"))
		go func() {
			time.Sleep(time.Second) // in the bubble
			w.seen(r, withMap(p, "u1"))
		}()
		began := time.Now()
		a := mustAsk(t, r, question("p", "u1"))
		want := facts.VIF{Interface: "net1", Definition: made, MadeFor: vif.Fingerprint(map[string]string{vif.AnnotationNetwork: `{"pool": "lan"}`}), Claim: "c", MAC: "02:00:00:00:00:01"}
		if len(a.VIFs) != 1 || a.VIFs[0] != want || time.Since(began) != time.Second {
			t.Errorf("after %v: %+v; want %+v", time.Since(began), a.VIFs, want)
		}
		if _, ok := definitionOf(&a, made.Namespace, made.Name); !ok {
			t.Errorf("networks %v; want the made definition among them", a.Networks)
		}
		synctest.Wait()
	})
}

// TestVIFsThatDoNotCome (K6): what is missing after five seconds may still come; a static pod's
// never does.
func TestVIFsThatDoNotCome(t *testing.T) {
	w, _ := vifWorld()
	run(t, w, func(t *testing.T, r *Resolver) {
		r.cfg.VIFs = true
		w.seen(r, podOf("p", "u1", "net-a"))
		began := time.Now()
		a := mustAsk(t, r, question("p", "u1"))
		if len(a.VIFs) != 1 || !a.VIFs[0].Later || !strings.Contains(a.VIFs[0].Refused, "has not written interface net1") || time.Since(began) != r.cfg.Wait {
			t.Errorf("after %v: %+v", time.Since(began), a.VIFs)
		}
		mirror := podOf("s", "u2", "net-a")
		mirror.MirrorOf = protocol.UID("file")
		w.seen(r, mirror)
		a = mustAsk(t, r, question("s", "file"))
		if len(a.VIFs) != 1 || a.VIFs[0].Later || !strings.Contains(a.VIFs[0].Refused, "static pod") {
			t.Errorf("a static pod: %+v", a.VIFs)
		}
		bad := podOf("b", "u3", "net-a")
		bad.Annotations[vif.AnnotationMap] = "{"
		w.seen(r, bad)
		if a = mustAsk(t, r, question("b", "u3")); len(a.VIFs) != 1 || !strings.Contains(a.VIFs[0].Refused, vif.AnnotationMap) {
			t.Errorf("a map that cannot be read: %+v", a.VIFs)
		}
	})
}

// TestVIFsOfAnInvalidAnnotation (K6): no map comes for such a pod, and none is waited for.
func TestVIFsOfAnInvalidAnnotation(t *testing.T) {
	w, _ := vifWorld()
	run(t, w, func(t *testing.T, r *Resolver) {
		r.cfg.VIFs = true
		w.seen(r, podOf("p", "u1", `[{"name": "net-a", "mac": "zz"}]`))
		began := time.Now()
		a := mustAsk(t, r, question("p", "u1"))
		if len(a.VIFs) != 1 || a.VIFs[0].Later || !strings.Contains(a.VIFs[0].Refused, "is invalid") || time.Since(began) > 0 {
			t.Errorf("after %v: %+v; want one that is refused at once", time.Since(began), a.VIFs)
		}
	})
}

// TestVIFsByVersion (K2): the annotation is read by the version that the definition says.
func TestVIFsByVersion(t *testing.T) {
	for version, refused := range map[string]bool{"1": false, "1.3": true, "": true} {
		w, _ := vifWorld()
		w.define(netA, "", vif.AnnotationNetwork, `{"pool": "lan"}`, npwg.AnnotationVersion, version)
		run(t, w, func(t *testing.T, r *Resolver) {
			r.cfg.VIFs = true
			w.seen(r, withMap(podOf("p", "u1", `[{"name": "net-a", "bandwidth": 3}]`), "u1"))
			if a := mustAsk(t, r, question("p", "u1")); len(a.VIFs) != 1 || (a.VIFs[0].Refused != "") != refused {
				t.Errorf("by version %q: %+v; want it refused: %t", version, a.VIFs, refused)
			}
		})
	}
}

// TestVIFsNotServed (K1).
func TestVIFsNotServed(t *testing.T) {
	w, _ := vifWorld()
	run(t, w, func(t *testing.T, r *Resolver) {
		w.seen(r, withMap(podOf("p", "u1", "net-a"), "u1"))
		if a := mustAsk(t, r, question("p", "u1")); len(a.VIFs) != 0 || !a.NoVIFs || len(a.Networks) != 1 {
			t.Errorf("%+v; want that none are served", a)
		}
	})
}
