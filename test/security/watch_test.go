package security_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	coordination "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/tenured/daemon"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// TestAgentMayWatch: the agent's rights are enough for whatever it follows, of an API
// server that gives nobody the objects that there are by way of a watch, but by a list.
func TestAgentMayWatch(t *testing.T) {
	rc := boundTo(t, "tenured", podOn(t, system, "tenured-watching", "node-a", "tenured"))
	opts, err := kube.ClientOptions(rc)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.NewWithWatch(rc, opts)
	if err != nil {
		t.Fatal(err)
	}
	for name, follow := range map[string]func(ctx context.Context, heard func()) error{
		"a pool": func(ctx context.Context, heard func()) error {
			return kube.FollowPool(ctx, c, "free", func(*v1alpha1.IPPool) { heard() })
		},
		"a sub-lease": func(ctx context.Context, heard func()) error {
			return kube.FollowSubLease(ctx, c, "of-a", "", func(*v1alpha1.IPSubLease) { heard() })
		},
		"a registration": func(ctx context.Context, heard func()) error {
			return kube.FollowRegistration(ctx, c, client.ObjectKey{Namespace: system, Name: "node-b"}, func(*coordination.Lease) { heard() })
		},
		"a definition that is not there": func(ctx context.Context, heard func()) error {
			return kube.FollowDefinition(ctx, c, client.ObjectKey{Namespace: "team-a", Name: "none"}, func(*nad.NetworkAttachmentDefinition) { heard() })
		},
		"a namespace": func(ctx context.Context, heard func()) error {
			return kube.FollowNamespace(ctx, c, "team-a", func(*metav1.PartialObjectMetadata) { heard() })
		},
		"its node's pods": func(ctx context.Context, heard func()) error {
			none := func(string) bool { return false }
			kube.NewPodCache(c, "node-a", none, func(*metav1.PartialObjectMetadata, bool) { heard() }).Run(ctx)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, stop := context.WithTimeoutCause(t.Context(), time.Minute, fmt.Errorf("nothing was heard of %s", name))
			defer stop()
			heard := false
			if err := follow(ctx, func() { heard = true; stop() }); err != nil {
				t.Error(err)
			}
			if !heard {
				t.Error(context.Cause(ctx))
			}
		})
	}
}

// TestRecallIsHeard, with controller and agent under their own roles: an agent cedes at
// once what it is asked for, and not with its next heartbeat, minutes later.
func TestRecallIsHeard(t *testing.T) {
	stop, err := fleet.StartController(t.Context(), boundTo(t, "tenure-controller", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	if err := kc.Create(t.Context(), parse(`{apiVersion: tenure.dev/v1alpha1, kind: IPPool, metadata: {name: recalled}, spec: {ranges: [{cidr: 10.84.0.0/28}], blockSize: 16}}`)); err != nil {
		t.Fatal(err)
	}
	f := fleet.New(t, boundTo(t, "tenured", podOn(t, system, "tenured-e", "node-e", "tenured")))
	f.Change = func(c *daemon.Config) { c.Agent.Wait = time.Minute }
	pod := podOn(t, "team-b", "recalled", "node-e", "default")
	if _, err := f.Start("node-e").Add(fleet.Interface{
		Network: "lan", Sandbox: "recalled", IfName: "eth0", Namespace: pod.Namespace, Pod: pod.Name, PodUID: string(pod.UID),
		IPAM: map[string]any{"type": "tenure", "pool": "recalled"},
	}); err != nil {
		t.Fatal(err)
	}
	api := kube.NewAPI(kc)
	leases, err := api.LeasesOfPool(t.Context(), "recalled")
	if err != nil || len(leases) != 1 {
		t.Fatalf("leases %v, %v; want one", leases, err)
	}
	ask := protocol.Recall{ID: "all-of-it", Lease: leases[0].Name, Ranges: []string{"10.84.0.0-10.84.0.15"}}
	fleet.Amend(t, api, "node-e", func(reg *protocol.Registration) {
		reg.Recalls, reg.Writes = append(reg.Recalls, ask), reg.Writes+1
	})
	fleet.Eventually(t, 10*time.Second, func() error {
		l, _, err := api.ReadLease(t.Context(), ask.Lease)
		if err == nil && (len(l.Ceded) == 0 || l.Published.Answered != ask.ID) {
			err = fmt.Errorf("ceded %v, answered %q; want all that is free, and %q", l.Ceded, l.Published.Answered, ask.ID)
		}
		return err
	})
}
