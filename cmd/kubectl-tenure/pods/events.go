package pods

import (
	"context"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
)

// mostEvents is how many of a pod's warnings are shown: the latest.
const mostEvents = 5

// events adds the warnings about the pod.
func (l podLook) events(ctx context.Context, v *podView) error {
	all, err := warnings(ctx, l.Session, v.Namespace, client.MatchingFields{"involvedObject.uid": v.UID})
	v.Events = all[:min(len(all), mostEvents)]
	return err
}

// warnings returns the warnings of a namespace about an object, the latest first.
func warnings(ctx context.Context, s *session.Session, namespace string, about client.MatchingFields) (events []eventView, err error) {
	about["type"] = corev1.EventTypeWarning
	all, err := session.ListAll(ctx, s.Client, &corev1.EventList{}, func(e *corev1.EventList) []corev1.Event { return e.Items }, client.InNamespace(namespace), about)
	if err != nil {
		return nil, err
	}
	for i := range all {
		e := &all[i]
		last := e.LastTimestamp.Time
		if last.IsZero() {
			last = e.EventTime.Time
		}
		events = append(events, eventView{Reason: e.Reason, Message: strings.TrimSpace(e.Message), Count: max(1, e.Count), Last: last})
	}
	slices.SortFunc(events, func(a, b eventView) int { return b.Last.Compare(a.Last) })
	return mergeEvents(events), nil
}

// sandboxID is that of a sandbox as kubelets quote it: each try has one of its own.
var sandboxID = regexp.MustCompile(`"[0-9a-f]{64}"`)

// mergeEvents merges events that differ only in the sandbox: it keeps the first, with the count
// of all.
func mergeEvents(events []eventView) (all []eventView) {
	first := map[string]int{}
	for _, e := range events {
		what := e.Reason + " " + sandboxID.ReplaceAllString(e.Message, "")
		if i, ok := first[what]; ok {
			all[i].Count += e.Count
			continue
		}
		first[what] = len(all)
		all = append(all, e)
	}
	return all
}
