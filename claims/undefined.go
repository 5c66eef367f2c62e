package claims

import (
	"context"
	"fmt"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	corev1 "k8s.io/api/core/v1"
)

// ReasonNetworkUndefined is of the Event about a claim whose network no definition has. The claim's
// status does not say it: the claim may be for another implementation.
const ReasonNetworkUndefined = "NetworkUndefined"

const (
	// silence is how long a claim of a network without a definition has a status that nobody
	// writes, until people are told that nobody serves it.
	silence = 3 * time.Minute
	// tellAgain is how often people are told that: an Event stays for an hour.
	tellAgain = 30 * time.Minute
)

// leaveAlone decides about a claim whose network is not known here. It may be for another
// implementation, and is not touched. If no definition has the network, and nobody has written the
// claim's status for a while, an Event says so: the name is likely to be wrong.
func (s seen) leaveAlone() plan {
	p := plan{withdraw: true}
	c := s.claim
	if written := len(c.ips)+len(c.conditions) > 0 || c.ownerPod != ""; written || !s.network.Undefined {
		return p
	}
	if age := s.now.Sub(c.created); age < silence {
		p.after = silence - age
		return p
	}
	p.tellUndefined, p.after = true, tellAgain
	return p
}

// tellUndefined makes an Event of that, unless there was one not long ago.
func (r *Reconciler) tellUndefined(ctx context.Context, obj *ipamclaims.IPAMClaim, c claim) {
	last, told := r.undefined.Load(c.key)
	if told && r.Now().Sub(last.(time.Time)) < tellAgain { //nolint:forcetypeassert // nothing else is stored
		return
	}
	r.undefined.Store(c.key, r.Now())
	why := fmt.Sprintf("no NetworkAttachmentDefinition has the CNI network %q, and nobody gives this claim addresses: "+
		"spec.network is the name in a definition's configuration, which may be another than the definition's own", c.network)
	r.Log.WarnContext(ctx, "claim of a network that nobody defines", "claim", c.key.Namespace+"/"+c.key.Name, "network", c.network)
	r.Events.Eventf(obj, nil, corev1.EventTypeWarning, ReasonNetworkUndefined, "Allocate", "%.1000s", why)
}
