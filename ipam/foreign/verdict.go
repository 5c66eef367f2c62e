package foreign

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// A Stage is what a pool waits for, before its new addresses can be given.
type Stage uint8

// The stages, in their order.
const (
	// StageUnknown: the pool has not been looked at as it is now.
	StageUnknown Stage = iota
	// StageOthers: another IPAM may give its addresses.
	StageOthers
	// StageFence: it is yet to be said, or to be heard, that whereabouts gives nothing new.
	StageFence
	// StageReports: nodes' agents have yet to say what their pods have, or cannot read all of it.
	StageReports
	// StageGrants: what pods have is yet to be kept for them.
	StageGrants
	// StagePods: pods that were bound before may still get an address of another IPAM.
	StagePods
	// StageClear: what pods of other IPAMs have of the new addresses is kept for them, but for
	// [Verdict.Blocked].
	StageClear
)

// A Verdict is what is known of a pool and other IPAMs. It is not changed once it is published.
type Verdict struct {
	// Of is the state of the pool that the verdict is about: see [StateOf].
	Of    string
	Stage Stage
	// Why says why it waits; empty where it does not.
	Why string
	// Others are the definitions by which another IPAM may give addresses of the pool, and Blocked
	// these addresses, with those that other pools give.
	Others  []Definition
	Blocked *netipx.IPSet
	// Beside are other pools that give the same addresses, or still keep some. Those that go first
	// are among what blocks the pool.
	Beside []Beside
	// Fence are the names of whereabouts' IPPools that must give nothing new, and the ranges of
	// which it must make no reservations. FenceIsNew says that pods which were bound before may
	// have something of what is new in it.
	Fence      []string
	FenceIsNew bool
	// Conflicts are addresses with two owners, and what cannot be kept for a pod.
	Conflicts []Conflict
	// PassedOver are nodes that were not waited for any longer: their agents beat, and do not say
	// what their pods have.
	PassedOver []protocol.NodeName
	// Held is what nodes cannot read, for want of which something stays kept that no pod is said to
	// have any more. NoAgent are nodes for whose word the same waits, and that have no agent, or
	// one that does not live.
	Held    []string
	NoAgent []protocol.NodeName
}

// Yields returns the other pools that go first: the pool is not opened beside them.
func (v Verdict) Yields() (all []Beside) {
	for _, b := range v.Beside {
		if b.First {
			all = append(all, b)
		}
	}
	return all
}

// Lingering returns the other pools that still keep addresses which they do not give any more.
func (v Verdict) Lingering() []Beside {
	return slices.DeleteFunc(slices.Clone(v.Beside), func(b Beside) bool { return b.Lease == "" })
}

// Clear reports whether nothing is waited for.
func (v Verdict) Clear() bool { return v.Stage == StageClear }

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
func (v Verdict) Same(o Verdict) bool { return reflect.DeepEqual(v, o) }

// Unread says what agents cannot read, and what to do about it.
func Unread(pool protocol.PoolName, what []string) string {
	return fmt.Sprintf("%s. Have it read there, or remove a damaged file; or, if the status of the pods shows all that they have, say so: "+
		"kubectl annotate ippools %s %s=true (kubectl tenure import --apply --trust-status does)", Few(what), pool, v1alpha1.AnnotationTrustStatus)
}

// Few lists the first of what may be many, for people.
func Few[T ~string](all []T) string {
	const most = 5
	var texts []string
	for _, text := range all[:min(len(all), most)] {
		texts = append(texts, string(text))
	}
	text := strings.Join(texts, ", ")
	if more := len(all) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
