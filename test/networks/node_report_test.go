package networks_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// The status goes into an annotation of its own; what others write meanwhile stays
// (N47), and so does what the pod has.
func TestStatusOverwritesNothing(t *testing.T) {
	ns := namespace(t, nil)
	pod := newPod(t, ns, "p", "busy", "a")
	n := node(t, "busy")
	const rounds = 20
	var others sync.WaitGroup
	for w := range 3 {
		others.Go(func() {
			for i := range rounds {
				fleet.Patch(t, kc, pod.DeepCopy(), fmt.Sprintf(`{"metadata":{"annotations":{"example.org/w%d":"%d"}}}`, w, i))
			}
		})
	}
	for i := range rounds {
		report(t, n, facts.Report{Pod: refOf(pod), Status: fmt.Appendf(nil, `[%d]`, i)})
	}
	others.Wait()
	awaitStatus(t, pod, fmt.Sprintf(`[%d]`, rounds-1))
	got, err := annotations(pod)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"k8s.v1.cni.cncf.io/networks": "a", "example.org/w0": fmt.Sprint(rounds - 1), "example.org/w1": fmt.Sprint(rounds - 1), "example.org/w2": fmt.Sprint(rounds - 1),
	} {
		if got[key] != want {
			t.Errorf("annotation %s is %q; want %q", key, got[key], want)
		}
	}
}

// What was accepted arrives, though the API server was away, and the agent ended and
// began anew meanwhile (N47).
func TestStatusSurvivesAnOutageAndARestart(t *testing.T) {
	ns := namespace(t, nil)
	pod := newPod(t, ns, "p", "outage", "")
	gone := newPod(t, ns, "gone", "outage", "")
	f := fleetOf(t, "outage")
	n := f.Start("outage")
	remove(t, gone)
	alone(t)
	if err := cp.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	report(t, n, facts.Report{Pod: refOf(pod), Status: []byte(`[1]`)})
	report(t, n, facts.Report{Pod: refOf(gone), Status: []byte(`[1]`)})
	report(t, n, facts.Report{Pod: refOf(pod), Status: []byte(`[2]`)})
	n.Stop()
	n = f.Launch("outage")
	if err := cp.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	awaitStatus(t, pod, `[2]`)
	fleet.Eventually(t, minute, func() error { return settled(n) })
}

// A status that has no room among the pod's annotations is given up, the pod is told, and the
// status that it had is taken off.
func TestStatusWithoutRoom(t *testing.T) {
	ns := namespace(t, nil)
	pod := newPod(t, ns, "p", "roomless", "")
	fleet.Patch(t, kc, pod.DeepCopy(), fmt.Sprintf(`{"metadata":{"annotations":{"example.org/much":%q,%q:"[0]"}}}`, strings.Repeat("x", 200<<10), npwg.AnnotationStatus))
	n := node(t, "roomless")
	report(t, n, facts.Report{Pod: refOf(pod), Status: fmt.Appendf(nil, `[%q]`, strings.Repeat("y", 100<<10))})
	fleet.Eventually(t, minute, func() error {
		e, err := event(pod, "NetworkStatusTooLarge")
		if err == nil && (e.Count > 1 || !strings.Contains(e.Message, "262144 bytes")) {
			err = fmt.Errorf("got %q, %d times; want it once", e.Message, e.Count)
		}
		return err
	})
	fleet.Eventually(t, minute, func() error { return settled(n) })
	awaitStatus(t, pod, "")
	report(t, n, facts.Report{Pod: refOf(pod), Status: []byte(`[1]`)})
	awaitStatus(t, pod, `[1]`)
}

// What is ignored of an annotation is said to the pod's owner (N20, A1).
func TestWarningsAreEvents(t *testing.T) {
	ns := namespace(t, nil)
	pod := newPod(t, ns, "p", "warnings", "")
	n := node(t, "warnings")
	for range 3 { // a runtime tries again and again
		report(t, n, facts.Report{Pod: refOf(pod), Warnings: []facts.Warning{{Reason: "InvalidNetworkAnnotation", Message: "ips is empty"}}})
	}
	fleet.Eventually(t, minute, func() error {
		e, err := event(pod, "InvalidNetworkAnnotation")
		if err == nil && (e.Message != "ips is empty" || e.Count != 3) {
			err = fmt.Errorf("got %q, %d times; want it three times", e.Message, e.Count)
		}
		return err
	})
	if got, err := metric(n, "tenure_attach_warnings_total"); err != nil || !strings.Contains(got, `{reason="InvalidNetworkAnnotation"} 3`) {
		t.Errorf("metrics say %q, %v", got, err)
	}
}

// event returns the one event of a pod that has that reason.
func event(pod *corev1.Pod, reason string) (corev1.Event, error) {
	var events corev1.EventList
	if err := kc.List(context.Background(), &events, client.InNamespace(pod.Namespace)); err != nil {
		return corev1.Event{}, err
	}
	if len(events.Items) != 1 {
		return corev1.Event{}, fmt.Errorf("%d events; want one", len(events.Items))
	}
	e := events.Items[0]
	if e.Type != corev1.EventTypeWarning || e.Reason != reason || e.InvolvedObject.UID != pod.UID {
		return e, fmt.Errorf("got %s %s %q of %s; want a warning %s of %s", e.Type, e.Reason, e.Message, e.InvolvedObject.UID, reason, pod.UID)
	}
	return e, nil
}

func awaitEvent(t *testing.T, pod *corev1.Pod, reason string) {
	t.Helper()
	fleet.Eventually(t, minute, func() error {
		_, err := event(pod, reason)
		return err
	})
}

// settled returns an error while a node's agent has statuses to write.
func settled(n *fleet.Node) error {
	got, err := metric(n, "tenure_attach_statuses_pending")
	if err == nil && got != "tenure_attach_statuses_pending 0\n" {
		err = fmt.Errorf("%s", got)
	}
	return err
}

// metric returns the lines of a metric of a node's agent.
func metric(n *fleet.Node, name string) (string, error) {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://"+n.Config().Listen+"/metrics", nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	var lines strings.Builder
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, name) {
			lines.WriteString(line)
		}
	}
	return lines.String(), err
}
