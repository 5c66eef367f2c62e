package who

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/screen"
)

func holderText(v View) string {
	if v.Node == "" {
		return "the cluster, lease " + v.Lease
	}
	return "node " + v.Node + ", lease " + v.Lease
}

func writeWho(to screen.Screen, addr netip.Addr, answers []View, owned bool) {
	for _, v := range answers {
		to.Line("pool %s: %s", v.Pool, v.Text())
	}
	if len(answers) == 0 {
		to.Line("%s is in no pool: neither in the ranges of one, nor in a lease. kubectl tenure pools -o wide shows the ranges", addr)
		return
	}
	if !owned && slices.ContainsFunc(answers, func(v View) bool { return v.unpublished }) {
		to.Line("%s: nobody has it, as far as is published: nodes do so twice a minute", addr)
	} else if !owned {
		to.Line("%s: nobody has it", addr)
	}
}

// Text says in words who has the address.
func (v View) Text() string {
	var pods []string
	for _, u := range v.Pods {
		pods = append(pods, u.String())
	}
	by := strings.Join(pods, " and ")
	var text string
	granted := "; granted by "
	switch v.Owner {
	case "Claim":
		text = "claim " + v.Claim + ", used by " + cmp.Or(by, "no pod now")
	case "Foreign":
		if len(v.Pods) == 0 {
			return "nobody: " + v.Note + "; kept from all by " + holderText(v)
		}
		u := v.Pods[0]
		text = fmt.Sprintf("pod %s/%s on node %s, which has it by another IPAM", u.Namespace, u.Pod, u.Node)
		granted = "; kept for the pod by "
	case "Reservation":
		text = "reservation " + v.Reservation
		if v.For != "" {
			text += ", for " + v.For
		}
	case "Request":
		text = cmp.Or(by, "a request that is gone") + ", sub-lease " + v.Request
	case "Pod", "ResourceClaim":
		text = by
		if v.Lease != "" {
			text += "; given by " + holderText(v)
		}
		if v.Note != "" {
			text += " (" + v.Note + ")"
		}
		return text
	default:
		return v.Note
	}
	if v.Freeing {
		of := strings.ToLower(v.Owner)
		if v.Owner == "Foreign" {
			of = "pod"
		}
		text += "; the grant is being taken back, as its " + of + " is gone or has other addresses"
	}
	return text + granted + holderText(v)
}
