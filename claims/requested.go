package claims

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/workload"
)

// ConditionRequestedIPs says whether a claim that has addresses has those that its annotation
// asks for. It is there only where the annotation is.
const ConditionRequestedIPs = "RequestedIPs"

// Reasons of the condition RequestedIPs.
const (
	// ReasonHonoured (True): the claim has what was asked for.
	ReasonHonoured = "Honoured"
	// ReasonDiffers (False): it had other addresses already, and keeps them.
	ReasonDiffers = "Differs"
)

// A request is a text that asks for addresses, and where it stands.
type request struct {
	text string
	from string // "tenure.dev/requested-ips", or a VirtualMachine's annotation
	// fault is why the text cannot be read at all.
	fault error
}

// request returns what is asked for in the claim's name: by the VirtualMachine that owns it, if
// that was read, or by its annotation.
func (s seen) request() request {
	if s.byMachine != nil {
		return *s.byMachine
	}
	return s.claim.request()
}

func (c claim) request() request {
	return request{text: c.requested, from: workload.AnnotationRequested}
}

// maxRequested is how many addresses a claim may ask for, as poolspec has it of an interface: each
// is compared with those before it, and an annotation has room for some ten thousand.
const maxRequested = 64

// parse reads the addresses, which commas separate. A prefix length is allowed, and is the
// network's all the same.
func (r request) parse() (addrs []netip.Addr, err error) {
	switch {
	case r.fault != nil:
		return nil, fmt.Errorf("%s: %w", r.from, r.fault)
	case strings.TrimSpace(r.text) == "":
		return nil, nil
	}
	for part := range strings.SplitSeq(r.text, ",") {
		ip, err := npwg.ParseIP(strings.TrimSpace(part))
		if err != nil {
			return nil, errors.New(r.prefix() + err.Error())
		}
		a := ip.Addr.Unmap()
		if slices.Contains(addrs, a) {
			return nil, fmt.Errorf("%s%v stands there twice", r.prefix(), a)
		}
		if len(addrs) == maxRequested {
			return nil, fmt.Errorf("%sit has more than %d addresses", r.prefix(), maxRequested)
		}
		addrs = append(addrs, a)
	}
	return addrs, nil
}

// prefix begins what is said of a request.
func (r request) prefix() string { return fmt.Sprintf("%s is %.80q: ", r.from, r.text) }

// judgeRequested has conditions say whether a claim that has ips has what its annotation asks
// for, and reports whether they said something else.
func judgeRequested(conditions *[]metav1.Condition, c claim, ips []string, now metav1.Time) (changed bool) {
	if c.requested == "" {
		return meta.RemoveStatusCondition(conditions, ConditionRequestedIPs)
	}
	is := metav1.Condition{
		Type: ConditionRequestedIPs, Status: metav1.ConditionTrue, Reason: ReasonHonoured, Message: "the claim has the addresses that were asked for",
		LastTransitionTime: now, ObservedGeneration: c.generation,
	}
	requested, err := c.request().parse()
	has, _ := parse(ips)
	lacks := slices.ContainsFunc(requested, func(a netip.Addr) bool { return !slices.Contains(has, a) })
	const stays = "addresses of a claim are never changed: delete the claim and make it again to have others"
	switch {
	case err != nil:
		is.Status, is.Reason, is.Message = metav1.ConditionFalse, ReasonRequestInvalid, err.Error()
	case lacks:
		is.Status, is.Reason, is.Message = metav1.ConditionFalse, ReasonDiffers, fmt.Sprintf("%sthe claim has %s; %s", c.request().prefix(), join(has), stays)
	}
	before := meta.FindStatusCondition(*conditions, is.Type)
	if before != nil && before.Status == is.Status && before.Reason == is.Reason && before.Message == is.Message {
		return false
	}
	return meta.SetStatusCondition(conditions, is)
}
