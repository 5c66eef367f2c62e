package attach_test

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/test/fleet"
)

// TestRealAgent (N14, N47, N75) has the agent itself answer, over a real API server: the
// pod's annotation and definitions come from there, and its status goes there; a
// DEL needs none of them.
func TestRealAgent(t *testing.T) {
	c := useCluster(t)
	n := newNode(t)
	ns := c.namespace()
	c.define(ns, "a", n.recorder("net-a", map[string]any{"ips": []string{"10.7.0.1/24"}}))
	p, s := c.pod(ns, "p", "worker", "a,a")
	agent := fleet.New(t, c.Config()).Start("worker")
	n.config["socket"] = agent.Socket()
	n.ok("ADD", s)
	n.called("ADD default eth0", "ADD net-a net1", "ADD net-a net2")
	fleet.Eventually(t, waitLimit, func() error { return c.statusHas(p, []string{"default", ns + "/a", ns + "/a"}) })

	must(t, c.client.Delete(t.Context(), p, client.GracePeriodSeconds(0)))
	agent.Stop()
	n.ok("DEL", s)
	n.called("DEL net-a net2", "DEL net-a net1", "DEL default eth0")
	n.clean()
}

// statusHas returns why the pod's status annotation does not have these networks.
func (c realCluster) statusHas(p *corev1.Pod, want []string) error {
	list, err := c.status(p)
	names := make([]string, len(list))
	for i, s := range list {
		names[i] = fmt.Sprint(s["name"])
	}
	if err == nil && !slices.Equal(names, want) {
		err = fmt.Errorf("status of %v; want %v", names, want)
	}
	return err
}
