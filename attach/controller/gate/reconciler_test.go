package gate_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/attach/controller/gate"
	"github.com/tenure-ipam/tenure/attach/judge"
	"github.com/tenure-ipam/tenure/ipam/access"
)

// known are the networks that there are.
type known map[string]judge.Network

func (k known) PodNetwork(_ context.Context, name string) (judge.Network, bool, error) {
	n, ok := k[name]
	return n, ok, nil
}

func (known) Attachment(context.Context, string, string) (a judge.Attachment, exists bool, err error) {
	return a, false, nil
}

func (known) Labels(context.Context, string) (map[string]string, error) {
	return map[string]string{}, nil
}

func (known) MayUse(context.Context, string, string) (bool, error) { return false, nil }

// open is the default network, and one of another provider, both ready.
func open() known {
	return known{
		"default": {Enabled: true, Ready: true},
		"lan":     {Provider: "example.org/x", Enabled: true, Ready: true},
	}
}

// gated returns a pod with a list, our gate, and further ones.
func gated(list string, further ...string) *corev1.Pod {
	pod := listing(list)
	for _, name := range append([]string{podnetwork.Gate}, further...) {
		pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: name})
	}
	return pod
}

// subject is a reconciler of one pod, and what it did.
type subject struct {
	*gate.Reconciler
	live   client.Client
	events *events.FakeRecorder
	writes int
}

func newSubject(pod *corev1.Pod, k known) *subject {
	s := &subject{events: events.NewFakeRecorder(10)}
	s.live = fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(pod).WithStatusSubresource(&corev1.Pod{}).
		WithInterceptorFuncs(interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				s.writes++
				return c.Patch(ctx, o, p, opts...)
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
				s.writes++
				return c.SubResource(sub).Patch(ctx, o, p, opts...)
			},
		}).Build()
	s.Reconciler = &gate.Reconciler{Cache: s.live, Live: s.live, Known: k, Events: s.events, Log: slog.New(slog.DiscardHandler), Now: time.Now}
	return s
}

// look has the reconciler look at the pod, and returns how it is then.
func (s *subject) look(t *testing.T) (*corev1.Pod, reconcile.Result) {
	t.Helper()
	key := client.ObjectKey{Namespace: "ns", Name: "p"}
	result, err := s.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
	if err != nil {
		t.Fatal(err)
	}
	var pod corev1.Pod
	if err := s.live.Get(t.Context(), key, &pod); err != nil {
		t.Fatal(err)
	}
	return &pod, result
}

// TestLiftAtOnce (W4): a pod that may pass costs one write, and keeps the gates of others.
func TestLiftAtOnce(t *testing.T) {
	s := newSubject(gated(lan, "example.org/x"), open())
	pod, _ := s.look(t)
	if g := pod.Spec.SchedulingGates; len(g) != 1 || g[0].Name != "example.org/x" {
		t.Errorf("gates are %v; want example.org/x alone", g)
	}
	if len(pod.Status.Conditions) > 0 || s.writes != 1 || len(s.events.Events) > 0 {
		t.Errorf("conditions %v, %d writes, %d Events; want a write alone", pod.Status.Conditions, s.writes, len(s.events.Events))
	}
	if s.look(t); s.writes != 1 {
		t.Errorf("a pod without the gate is written")
	}
}

// TestHold (W4, W9): a pod that may not pass keeps its gate, and says why once.
func TestHold(t *testing.T) {
	refused := open()
	refused["lan"] = judge.Network{Provider: "x", Enabled: true, Ready: true, Access: access.Rule{Of: access.PodNetwork, Asks: true}}
	for name, tt := range map[string]struct {
		list         string
		known        known
		reason, says string
		again        bool
	}{
		"no such network": {list: `[{"podNetworkName": "no"}]`, known: open(), reason: gate.ReasonNetworksNotReady, says: "element 1: PodNetwork no does not exist"},
		"no such attachment": {
			list: `[{"podNetworkName": "default"}, {"podNetworkAttachmentName": "no"}]`, known: open(), reason: gate.ReasonNetworksNotReady,
			says: "element 2: there is no PodNetworkAttachment no",
		},
		"refused": {list: lan, known: refused, reason: gate.ReasonNetworksRefused, says: "group system:serviceaccounts:ns is not allowed the verb use on podnetworks.tenure.dev/lan", again: true},
		"one refused, one missing": {
			list: `[{"podNetworkName": "lan"}, {"podNetworkName": "no"}]`, known: refused, reason: gate.ReasonNetworksRefused,
			says: "; element 2: PodNetwork no does not exist", again: true,
		},
		"a wrong list": {list: "lan", known: open(), reason: gate.ReasonInvalidList, says: "want a JSON list"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSubject(gated(tt.list), tt.known)
			pod, result := s.look(t)
			if len(pod.Spec.SchedulingGates) != 1 || len(pod.Status.Conditions) != 1 {
				t.Fatalf("gates %v, conditions %v; want one of each", pod.Spec.SchedulingGates, pod.Status.Conditions)
			}
			c := pod.Status.Conditions[0]
			if c.Type != gate.ConditionNetworksReady || c.Status != corev1.ConditionFalse || c.Reason != tt.reason || !strings.Contains(c.Message, tt.says) {
				t.Errorf("condition %+v; want False, %s, %q", c, tt.reason, tt.says)
			}
			if (result.RequeueAfter > 0) != tt.again {
				t.Errorf("looked at again after %v; want it: %t", result.RequeueAfter, tt.again)
			}
			s.look(t)
			if s.writes != 1 || len(s.events.Events) != 1 {
				t.Errorf("%d writes and %d Events for two looks; want one of each", s.writes, len(s.events.Events))
			}
		})
	}
}

// TestHoldThenLift (W4): who has waited has a condition True in the end.
func TestHoldThenLift(t *testing.T) {
	k := open()
	delete(k, "lan")
	s := newSubject(gated(lan), k)
	s.look(t)
	k["lan"] = open()["lan"]
	pod, _ := s.look(t)
	if len(pod.Spec.SchedulingGates) > 0 {
		t.Errorf("gates are %v; want none", pod.Spec.SchedulingGates)
	}
	if c := pod.Status.Conditions; len(c) != 1 || c[0].Status != corev1.ConditionTrue || c[0].Reason != gate.ReasonNetworksReady {
		t.Errorf("conditions are %+v; want one, True", c)
	}
}

// TestRelease: every pod loses our gate, and no other, while PodNetworks are not served; also one
// that gets it when all had lost theirs.
func TestRelease(t *testing.T) {
	live := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(gated(lan, "example.org/x")).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).Build()
	released := func(name string) {
		t.Helper()
		var pod corev1.Pod
		if err := live.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: name}, &pod); err != nil {
			t.Fatal(err)
		}
		if g := pod.Spec.SchedulingGates; len(g) != 1 || g[0].Name != "example.org/x" {
			t.Errorf("pod %s has gates %v; want example.org/x alone", name, g)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- (&gate.Release{Live: live, Log: slog.New(slog.DiscardHandler)}).Run(ctx) }()
		synctest.Wait()
		released("p")
		late := gated(lan, "example.org/x")
		late.Name = "late"
		if err := live.Create(ctx, late); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		released("late")
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
