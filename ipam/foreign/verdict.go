package foreign

import (
	"fmt"
	"time"

	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
)

// A Verdict is what is known of a pool and other IPAMs.
type Verdict struct {
	// Of is the state of the pool that the verdict is about: see [StateOf].
	Of string
	// Clear says that what pods of other IPAMs have of the pool's new addresses is kept
	// for them, but for Blocked.
	Clear bool
	// Why says why it is not clear; empty where it is.
	Why string
	// Others are the definitions by which another IPAM may give addresses of the pool,
	// and Blocked these addresses.
	Others  []Definition
	Blocked *netipx.IPSet
	// Fence are the names of whereabouts' IPPools that must give nothing new.
	Fence []string
	// Conflicts are addresses with two owners.
	Conflicts []Conflict
}

// TrustsStatus reports whether somebody has given the word that the pods' status tells all.
func TrustsStatus(p *v1alpha1.IPPool) bool {
	return p.Annotations[v1alpha1.AnnotationTrustStatus] == "true"
}

// StateOf tells the state of a pool, as far as a verdict depends on it, from others.
func StateOf(p *v1alpha1.IPPool) string {
	since := ""
	if p.Status.FencedSince != nil {
		since = p.Status.FencedSince.UTC().Format(time.RFC3339)
	}
	bits := func(n *int32) int32 {
		if n == nil {
			return 0
		}
		return *n
	}
	size := v1alpha1.BlockPrefixLengths{}
	if b := p.Status.BlockPrefixLengths; b != nil {
		size = *b
	}
	return fmt.Sprintf("%s/%d/%s/%s/%v/%v/%d/%d/%s/%v", p.UID, p.Generation, p.Status.Leasing, p.Status.Opening, p.Status.Withheld, p.Status.Fenced, bits(size.IPv4), bits(size.IPv6), since, TrustsStatus(p))
}

// Same reports whether v and o say the same.
func (v Verdict) Same(o Verdict) bool {
	text := func(x Verdict) string {
		return fmt.Sprint(x.Of, x.Clear, x.Why, x.Fence, x.Conflicts, x.Others, setText(x.Blocked))
	}
	return text(v) == text(o)
}

func setText(s *netipx.IPSet) string {
	if s == nil {
		return ""
	}
	return fmt.Sprint(s.Ranges())
}
