package claims

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/vif"
	"github.com/tenure-ipam/tenure/api/workload"
	"github.com/tenure-ipam/tenure/ipam/controller/grants"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Reasons of the condition IPsAllocated. The first four are those that
// OVN-Kubernetes made customary; the others are Tenure's.
const (
	ReasonAllocated     = "SuccessfulAllocation"
	ReasonExhausted     = "SubnetExhausted"
	ReasonConflict      = "IPAddressConflict"
	ReasonInternalError = "InternalError"

	// ReasonNetworkAmbiguous: the network's definitions name different pools.
	ReasonNetworkAmbiguous = "NetworkAmbiguous"
	// ReasonNetworkFaulty: the network's definition cannot be read.
	ReasonNetworkFaulty = "NetworkFaulty"
	// ReasonPoolNotFound: the network's pool does not exist.
	ReasonPoolNotFound = "PoolNotFound"
	// ReasonPoolNotReady: the network's pool is closed.
	ReasonPoolNotReady = "PoolNotReady"
	// ReasonPoolNotAllowed: the claim's namespace may not use the network's pool.
	ReasonPoolNotAllowed = "PoolNotAllowed"
	// ReasonAccessUnknown: it cannot be told now whether it may.
	ReasonAccessUnknown = "PoolAccessUnknown"
	// ReasonRequestInvalid: the annotation asks for what is no address, or for one that the
	// network can never give.
	ReasonRequestInvalid = "RequestedIPsInvalid"
	// ReasonWaitForFirstConsumer: the network's pool has ranges for some nodes alone, and no pod of
	// the claim has come to a node yet.
	ReasonWaitForFirstConsumer = "WaitForFirstConsumer"
	// ReasonTopologyInvalid: the annotation that says for which nodes the addresses are cannot be
	// read, or no range of the network's pool is for them.
	ReasonTopologyInvalid = "TopologyInvalid"
	// ReasonRequestedTaken: somebody else has an address that the annotation asks for.
	ReasonRequestedTaken = "RequestedIPsTaken"
)

// status is what a claim's status is to be.
type status struct {
	ips        []string
	conditions []metav1.Condition
	ownerPod   string
	// news is the condition, if it is other than before in more than its words.
	news *metav1.Condition
}

// outcome is what is to be said about a claim.
type outcome struct {
	ips      []string // nil: leave what is there
	status   metav1.ConditionStatus
	reason   string
	message  string
	ownerPod string
}

// allocated returns the outcome for a claim that has its addresses. ips are written if the status
// has none.
func (s seen) allocated(ips []string) outcome {
	return outcome{
		ips: ips, status: metav1.ConditionTrue, reason: ReasonAllocated, message: "addresses are allocated",
		ownerPod: s.ownerPod(),
	}
}

// failed returns the outcome for a claim that has no addresses which it may use.
func (s seen) failed(reason, message string) outcome {
	return outcome{status: metav1.ConditionFalse, reason: reason, message: message, ownerPod: s.claim.ownerPod}
}

// condition returns the claim's condition IPsAllocated, or nil.
func (s seen) condition() *metav1.Condition {
	return meta.FindStatusCondition(s.claim.conditions, kube.ConditionIPsAllocated)
}

// reason returns the condition's reason; empty, if there is no condition.
func (s seen) reason() string {
	if c := s.condition(); c != nil {
		return c.Reason
	}
	return ""
}

// change returns the status to write, or nil if it is as o says already.
func (s seen) change(o outcome) *status {
	next := status{ips: s.claim.ips, conditions: slices.Clone(s.claim.conditions), ownerPod: o.ownerPod}
	if o.ips != nil {
		next.ips = o.ips
	}
	changed := o.ips != nil || o.ownerPod != s.claim.ownerPod
	before := s.condition()
	wanted := metav1.Condition{
		Type: kube.ConditionIPsAllocated, Status: o.status, Reason: o.reason, Message: o.message,
		LastTransitionTime: metav1.NewTime(s.now.Truncate(time.Second)),
	}
	if before == nil || before.Status != o.status || before.Reason != o.reason || before.Message != o.message {
		changed = true
		wanted.ObservedGeneration = s.claim.generation
		meta.SetStatusCondition(&next.conditions, wanted)
		// A first allocation is no news: there is one for every claim. Nor is it that a pod is
		// waited for, or has come.
		waits, waited := o.reason == ReasonWaitForFirstConsumer, before != nil && before.Reason == ReasonWaitForFirstConsumer
		bad := o.status == metav1.ConditionFalse
		if bad && !waits && (before == nil || before.Reason != o.reason) || !bad && before != nil && !waited {
			next.news = &wanted
		}
	}
	if len(next.ips) > 0 && judgeRequested(&next.conditions, s.claim, next.ips, wanted.LastTransitionTime) {
		changed = true
	}
	if s.judgePort(&next.conditions) {
		changed = true
	}
	if !changed {
		return nil
	}
	return &next
}

// patch returns the merge patch that writes st into c's status, and only into c:
// another claim of its name, or a later version, makes it fail. `ips` is never
// null, and what is there is never overwritten.
func (st status) patch(c claim) (client.Patch, error) {
	fields := map[string]any{"conditions": st.conditions, "ownerPod": nil}
	if st.ownerPod != "" {
		fields["ownerPod"] = ipamclaims.OwnerPod{Name: st.ownerPod}
	}
	if len(c.ips) == 0 {
		ips := st.ips
		if ips == nil {
			ips = []string{}
		}
		fields["ips"] = ips
	}
	seen := protocol.Meta{Name: c.key.Name, UID: c.uid, Revision: c.revision}
	return kube.SwapPatch(seen, map[string]any{"status": fields}) //nolint:wrapcheck // says what it is about
}

// read reads an IPAMClaim.
func read(o *ipamclaims.IPAMClaim) claim {
	c := claim{
		key: grants.ClaimKey{Namespace: o.Namespace, Name: o.Name}, uid: protocol.UID(o.UID),
		revision: protocol.Revision(o.ResourceVersion), generation: o.Generation, created: o.CreationTimestamp.Time,
		deleting: o.DeletionTimestamp != nil, network: o.Spec.Network, requested: o.Annotations[workload.AnnotationRequested],
		topology: o.Annotations[workload.AnnotationTopology],
		ips:      o.Status.IPs, conditions: o.Status.Conditions,
	}
	if owner := kube.OwnerOf(o); owner.Kind == kube.VirtualMachine.Kind && len(c.ips) == 0 && c.requested == "" {
		c.machine = owner.Name
	}
	if o.Status.OwnerPod != nil {
		c.ownerPod = o.Status.OwnerPod.Name
	}
	c.port, _ = vif.ParsePort(o.Annotations[vif.AnnotationPort]) // what cannot be read is written anew
	return c
}

// parse reads status.ips; malformed is the first element that is no CIDR.
func parse(ips []string) (addrs []netip.Addr, malformed string) {
	for _, ip := range ips {
		p, err := netip.ParsePrefix(ip)
		if err != nil {
			return addrs, ip
		}
		addrs = append(addrs, p.Addr().Unmap())
	}
	return addrs, ""
}

func addrsOf(held []grants.Held) []netip.Addr {
	var out []netip.Addr
	for _, h := range held {
		out = append(out, h.Grant.Addr)
	}
	return out
}

func join(addrs []netip.Addr) string {
	if len(addrs) == 0 {
		return "nothing"
	}
	var out []string
	for _, a := range addrs {
		out = append(out, a.String())
	}
	return strings.Join(out, ", ")
}
