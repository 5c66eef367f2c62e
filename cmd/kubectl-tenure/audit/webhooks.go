package audit

import "time"

// Webhooks are those that check new pods which list PodNetworks.
type Webhooks struct {
	// End is when their certificate ends, zero where the API server trusts none. Within Soon of it
	// that is worth knowing.
	End  time.Time
	Soon time.Duration
}

// webhooks finds webhooks of PodNetworks that the API server cannot call, or not for long. A pod's
// list is judged again on its node.
func (l *look) webhooks() {
	if l.Webhooks == nil {
		return
	}
	end := l.Webhooks.End
	what := "their certificate ends on " + end.Format(time.DateOnly)
	switch {
	case end.IsZero():
		what = "they have no certificate that the API server trusts"
	case end.Before(l.Now):
		what = "their certificate has ended on " + end.Format(time.DateOnly)
	case end.After(l.Now.Add(l.Webhooks.Soon)):
		return
	}
	l.add(WebhooksUnused, "webhooks pod-networks.tenure.dev", place{},
		what+". Without it a pod with a wrong list of PodNetworks is not refused when it is created, and one whose networks are not ready is scheduled and waits on its node",
		"run helm upgrade where Helm has installed Tenure, else kubectl tenure certificate; where cert-manager makes it, see its Certificate tenure-controller-webhook. docs/howto/pod-networks.md tells more")
}
