package poolspec

import "net/netip"

// Member is one configuration's share of an implicit pool.
type Member struct {
	// Name is for people: "namespace/name" of a NetworkAttachmentDefinition.
	Name string
	// Pool is the Implicit of one of its sources.
	Pool PoolText
}

// Disagreement is what two members of an implicit pool see differently and only
// one of them can have.
type Disagreement struct {
	Kind DisagreementKind
	// Member is who does not get its way, Decider who does.
	Member, Decider string
	// Prefix is the range in question, as the pool has it.
	Prefix netip.Prefix
	// Says is what Member says, Decided what the pool has.
	Says, Decided string
}

// DisagreementKind is what a [Disagreement] is about.
type DisagreementKind uint8

// The kinds.
const (
	// DisagreeGateway: two gateways of one range. Both are kept free; the pool
	// has the older member's.
	DisagreeGateway DisagreementKind = iota + 1
	// DisagreePrefix: a range lies within another's wider one. No address is
	// given twice; each member's pods see its own prefix length.
	DisagreePrefix
)

// Unite returns the implicit pool of members, which are given oldest first: the
// union of what each may take, and what they disagree about. The pool does not
// depend on the order but for gateways, where the oldest decides.
func Unite(members []Member) (PoolText, []Disagreement, error) {
	return PoolText{}, nil, nil
}
