package resourceclaims_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/tenured/daemon"
	"github.com/tenure-ipam/tenure/ipam/history"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// kubectlTenure returns what runs kubectl tenure, and answers what it says, in one line.
func kubectlTenure(t *testing.T) (run func(args ...string) string) {
	t.Helper()
	tool := fleet.Build(t, cp, "kubectl-tenure")
	return func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), tool.Path, args...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+tool.Kubeconfig)
		out, _ := cmd.CombinedOutput() // what it says tells
		return strings.Join(strings.Fields(string(out)), " ")
	}
}

// kubectl tenure names the ResourceClaim that has an address, now and before; of a pod it shows
// what drivers say in the status of its ResourceClaims.
func TestTool(t *testing.T) {
	newPool(t, "tool", v1alpha1.Range{CIDR: "10.75.0.0/24"})
	_, d := start(t, "tool", func(c *daemon.Config) { c.Agent.PublishEvery = 100 * time.Millisecond })
	c, pod := newOwner(t, d.n, "tool")
	ip := d.has(c, "eth1", profile("tenure.dev/tool")).Interface.Addresses[0]
	addr, _, _ := strings.Cut(ip, "/")

	say(t, c, "eth1", []string{ip})
	run := kubectlTenure(t)
	want := fmt.Sprintf("pool tool: ResourceClaim default/tool, device eth1, of pod default/tool on node %s; given by node %s", d.n.Name, d.n.Name)
	fleet.Eventually(t, time.Minute, func() error {
		if said := run("who", addr); !strings.HasPrefix(said, want) {
			return fmt.Errorf("who says %s; want %s", said, want)
		}
		return nil
	})
	if said := run("pod", "default/tool"); !strings.Contains(said, "net1 eth1 "+ip+" tool dra.net") {
		t.Errorf("pod says %s", said)
	}
	remove(t, pod)
	if said := run("who", addr); !strings.Contains(said, "the pod is gone from that node: the address is free when the ResourceClaim, or the device in it, and the pod's sandbox are gone too") {
		t.Errorf("who says %s", said)
	}

	fleet.Eventually(t, time.Minute, func() error { // it is written in the agent's own time
		past, err := history.Read(filepath.Join(filepath.Dir(d.n.Config().Store), "history"), netip.MustParseAddr(addr), time.Time{}, time.Now())
		if err != nil {
			return err
		}
		text, err := json.Marshal(past)
		if err == nil && !strings.Contains(string(text), `"resourceClaim":"default/tool"`) {
			err = fmt.Errorf("the history is %s; want the ResourceClaim in it", text)
		}
		return err
	})
}
