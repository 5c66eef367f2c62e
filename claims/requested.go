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

// A wish is a text that asks for addresses, and where it stands.
type wish struct {
	text string
	at   string // "tenure.dev/requested-ips", or a VirtualMachine's annotation
	// wrong is why the text cannot be read at all.
	wrong error
}

// wish returns what is asked for in the claim's name: by its annotation, or else by the
// VirtualMachine that owns it.
func (s seen) wish() wish {
	if s.claim.requested == "" && s.machine != nil {
		return *s.machine
	}
	return wishOfClaim(s.claim)
}

func wishOfClaim(c claim) wish { return wish{text: c.requested, at: workload.AnnotationRequested} }

// parse reads the addresses, which commas separate. A prefix length is allowed, and is the
// network's all the same.
func (w wish) parse() (addrs []netip.Addr, err error) {
	switch {
	case w.wrong != nil:
		return nil, fmt.Errorf("%s: %w", w.at, w.wrong)
	case strings.TrimSpace(w.text) == "":
		return nil, nil
	}
	for part := range strings.SplitSeq(w.text, ",") {
		ip, err := npwg.ParseIP(strings.TrimSpace(part))
		if err != nil {
			return nil, errors.New(w.is() + err.Error())
		}
		a := ip.Addr.Unmap()
		if slices.Contains(addrs, a) {
			return nil, fmt.Errorf("%s%v stands there twice", w.is(), a)
		}
		addrs = append(addrs, a)
	}
	return addrs, nil
}

// is begins what is said of a wish.
func (w wish) is() string { return fmt.Sprintf("%s is %.80q: ", w.at, w.text) }

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
	requested, err := wishOfClaim(c).parse()
	has, _ := parse(ips)
	lacks := slices.ContainsFunc(requested, func(a netip.Addr) bool { return !slices.Contains(has, a) })
	const stays = "addresses of a claim are never changed: delete the claim and make it again to have others"
	switch {
	case err != nil:
		is.Status, is.Reason, is.Message = metav1.ConditionFalse, ReasonRequestInvalid, err.Error()
	case lacks:
		is.Status, is.Reason, is.Message = metav1.ConditionFalse, ReasonDiffers, fmt.Sprintf("%sthe claim has %s; %s", wishOfClaim(c).is(), join(has), stays)
	}
	before := meta.FindStatusCondition(*conditions, is.Type)
	if before != nil && before.Status == is.Status && before.Reason == is.Reason && before.Message == is.Message {
		return false
	}
	return meta.SetStatusCondition(conditions, is)
}
