package controller_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/test/fleet"
	"github.com/tenure-ipam/tenure/test/programs"
)

// theirs is whereabouts itself, run with one configuration, as a meta-plugin runs it.
type theirs struct {
	t      *testing.T
	ns     string
	config string
}

// run calls it for a pod's sandbox, and returns the addresses of its answer.
func (w theirs) run(command, pod, sandbox string) (addrs []string, err error) {
	w.t.Helper()
	rig, err := programs.RigDir()
	if err != nil {
		w.t.Fatal(err)
	}
	program, err := programs.InRig(rig, "whereabouts")
	if err != nil {
		w.t.Fatalf("%v: run `make rig-foreign`", err)
	}
	var out, log bytes.Buffer
	c := exec.CommandContext(w.t.Context(), program)
	c.Stdin, c.Stdout, c.Stderr = strings.NewReader(w.config), &out, &log
	c.Env = []string{
		"CNI_COMMAND=" + command, "CNI_CONTAINERID=" + sandbox, "CNI_NETNS=/proc/self/ns/mnt", "CNI_IFNAME=net1", "CNI_PATH=/none", "NODENAME=nowhere",
		fmt.Sprintf("CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=%s;K8S_POD_NAME=%s", w.ns, pod),
	}
	if err := c.Run(); err != nil {
		return nil, fmt.Errorf("%s for %s: %w: %s%s", command, pod, err, &out, &log)
	}
	var result struct{ IPs []struct{ Address string } }
	if err := json.Unmarshal(out.Bytes(), &result); out.Len() > 0 && err != nil {
		w.t.Fatalf("%s answers %s: %v", command, &out, err)
	}
	for _, ip := range result.IPs {
		addrs = append(addrs, netip.MustParsePrefix(ip.Address).Addr().String())
	}
	return addrs, nil
}

// recorded returns the pods that whereabouts has recorded, of its IPPools and reservations.
func recorded(t *testing.T) (pods []string) {
	t.Helper()
	for _, list := range fleet.WhereaboutsLists() {
		if err := kc.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		for _, o := range list.Items {
			var spec struct {
				PodRef      string
				Allocations map[string]struct{ PodRef string }
			}
			text, err := json.Marshal(o.Object["spec"])
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(text, &spec); err != nil {
				t.Fatal(err)
			}
			if spec.PodRef != "" {
				pods = append(pods, spec.PodRef)
			}
			for _, a := range spec.Allocations {
				pods = append(pods, a.PodRef)
			}
		}
	}
	slices.Sort(pods)
	return pods
}

// TestWhereaboutsItselfGivesNothing: once a pool is open, whereabouts itself answers no ADD with an
// address of it, as that of a thick Multus which has the old definition in its cache, whatever it
// ignores. What pods have it takes back.
func TestWhereaboutsItselfGivesNothing(t *testing.T) {
	fleet.Whereabouts(t, kc)
	start(t)
	dir := t.TempDir()
	kubeconfig, file := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "whereabouts.conf")
	if err := cp.Kubeconfig(kubeconfig); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, fmt.Appendf(nil, `{"log_level":"error","kubernetes":{"kubeconfig":%q}}`, kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, ipam string }{
		{"one range", `"range":"10.83.0.0/24"`},
		{"both families, with a name", `"network_name":"NAME","ipRanges":[{"range":"10.84.0.0/24"},{"range":"fd84::/64"}]`},
		{"reservations off", `"range":"10.85.0.0/24","enable_overlapping_ranges":false`},
		{"both families, reservations off", `"ipRanges":[{"range":"10.86.0.0/24"},{"range":"fd86::/64"}],"enable_overlapping_ranges":false`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ns := namespace(t)
			keys := strings.ReplaceAll(tt.ipam, "NAME", fleet.Unique("vlan"))
			d := definition(t, ns, "net", fleet.Unique("net"), `{"type":"whereabouts",`+keys+`}`)
			whereabouts := theirs{t, ns, fmt.Sprintf(`{"cniVersion":"1.0.0","name":"net","type":"bridge","ipam":{"type":"whereabouts",%s,"configuration_path":%q}}`, keys, file)}
			old, err := whereabouts.run("ADD", "old", "sandbox-old")
			if err != nil || len(old) == 0 {
				t.Fatalf("before the move whereabouts answers %v, %v", old, err)
			}
			running(t, ns, "old", "nowhere", "net", old...)
			fleet.Edit(t, kc, d, func() { d.Spec.Config = strings.Replace(d.Spec.Config, "whereabouts", "tenure", 1) })
			openedOf(t, netip.MustParseAddr(old[0]))
			for _, pod := range []string{"new", "old"} {
				if got, err := whereabouts.run("ADD", pod, "sandbox-later"); err == nil || !strings.Contains(err.Error(), "kubectl tenure import") {
					t.Errorf("whereabouts gives pod %s %v, %v, when the pool is open; want it refused, and what to do", pod, got, err)
				}
			}
			if got := slices.Compact(recorded(t)); !slices.Equal(got, []string{ns + "/old"}) {
				t.Errorf("whereabouts has recorded %q; want the old pod alone", got)
			}
			if _, err := whereabouts.run("DEL", "old", "sandbox-old"); err != nil {
				t.Error(err)
			}
			if got := recorded(t); len(got) > 0 {
				t.Errorf("after DEL whereabouts has recorded %q", got)
			}
		})
	}
}

// openedOf waits until the pool that has an address is open.
func openedOf(t *testing.T, a netip.Addr) {
	t.Helper()
	eventually(t, 30*time.Second, func() error {
		pools := &v1alpha1.IPPoolList{}
		if err := kc.List(t.Context(), pools); err != nil {
			return err
		}
		for _, p := range pools.Items {
			if len(p.Spec.Ranges) > 0 && netip.MustParsePrefix(p.Spec.Ranges[0].CIDR).Contains(a) {
				if c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.PoolReady); c == nil || c.Status != metav1.ConditionTrue {
					return fmt.Errorf("pool %s: %+v", p.Name, c)
				}
				return nil
			}
		}
		return fmt.Errorf("no pool has %v", a)
	})
}
