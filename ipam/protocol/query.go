package protocol

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// A Query is what the controller asks a node's agent, on the node's registration: which addresses
// in Ranges the pods of the node have, whoever gave them, and which pods still run there.
type Query struct {
	// ID is new for each query; the answer carries it.
	ID string `json:"id"`
	// Ranges are "first-last", inclusive.
	Ranges []string `json:"ranges,omitempty"`
	// HostLocal are the networks whose files of host-local the agent reads.
	HostLocal []HostLocal `json:"hostLocal,omitempty"`
	// From, if valid, is the address where the answer is to go on: a report before had no room for
	// all of it, and for those after it. Of what it has of From it has told what goes up to After.
	From  netip.Addr `json:"from,omitzero"`
	After string     `json:"after,omitempty"`
	// Parts says that who asks can have an answer go on within an address.
	Parts bool `json:"parts,omitempty"`
}

// MaxQuery and MaxReport are how long the texts of a query and of a report may be, in bytes. An
// object's annotations have 256 KiB together, of which heartbeats and recalls need their part.
const (
	MaxQuery  = 24 << 10
	MaxReport = 96 << 10
)

// maxAfter is how long [Query.After] may be: names and IDs have bounds.
const maxAfter = 2 << 10

// HostLocal is a network that host-local may have given addresses of.
type HostLocal struct {
	Network string `json:"network"`
	// DataDir is host-local's directory; "" is its default.
	DataDir string `json:"dataDir,omitempty"`
}

// String returns q as [Registration.Query] has it.
func (q Query) String() string { return jsonText(q) }

// ParseQuery is the inverse of [Query.String].
func ParseQuery(text string) (q Query, err error) {
	if err := json.Unmarshal([]byte(text), &q); err != nil {
		return Query{}, fmt.Errorf("query: %w", err)
	}
	return q, nil
}

// A Report is an agent's answer to a [Query].
type Report struct {
	// ID is that of the query.
	ID string `json:"id"`
	// Running are the UIDs, as the runtime knows them, of the pods that have a sandbox
	// on the node, or may have one.
	Running []UID `json:"running,omitempty"`
	// Has are the addresses, within the query's ranges, of those sandboxes, and those that Tenure
	// has given here or taken back of late.
	Has []Sighting `json:"has,omitempty"`
	// Asked are, by the query's networks, the UIDs of the pods of which an ADD for the network has
	// come to this agent, of late or with an address that the pod has: another IPAM's for it is
	// over by then.
	Asked map[string][]UID `json:"asked,omitempty"`
	// Unread says, for people, what could not be read of that which all of the report is made of;
	// empty if nothing. The report is not whole then.
	Unread string `json:"unread,omitempty"`
	// Unseen is what could not be read of single networks, for which the report is not whole.
	Unseen []Unseen `json:"unseen,omitempty"`
	// Next, if valid, says that there was no room for all of Next, and for the addresses after it:
	// see [Query.From], also of After.
	Next  netip.Addr `json:"next,omitzero"`
	After string     `json:"after,omitempty"`
	// Parts is the query's.
	Parts bool `json:"-"`
}

// Unseen is what an agent was to read of a network, and cannot.
type Unseen struct {
	HostLocal
	Why string `json:"why"`
}

// A Sighting is an address that a sandbox on a node has, or had of late by Tenure.
type Sighting struct {
	Addr netip.Addr `json:"address"`
	// Pod is the pod, as far as the runtime has told; the UID is that of the runtime.
	Pod PodRef `json:"pod,omitzero"`
	// Sandbox is the container ID.
	Sandbox string `json:"sandbox,omitempty"`
	// Network is the network's name, and IPAM the type of the IPAM that gave the address.
	Network string `json:"network,omitempty"`
	IPAM    string `json:"ipam,omitempty"`
	// Pool is the pool that Tenure has given the address of; "" if the agent does not know, or
	// is of an earlier version.
	Pool PoolName `json:"pool,omitempty"`
	// Freed says that Tenure has taken the address back, of late.
	Freed bool `json:"freed,omitempty"`
}

// Compare compares two sightings, first by their addresses.
func (s Sighting) Compare(o Sighting) int {
	return cmp.Or(s.Addr.Compare(o.Addr), strings.Compare(s.rest(), o.rest()))
}

// rest returns a text of all of s but the address.
func (s Sighting) rest() string {
	return strings.Join([]string{s.Sandbox, s.IPAM, s.Network, string(s.Pool), strconv.FormatBool(s.Freed), string(s.Pod.UID), s.Pod.Namespace, s.Pod.Name}, "\t")
}

// Told reports whether a report before has told s: see [Query.From].
func (q Query) Told(s Sighting) bool {
	return s.Addr.Less(q.From) || s.Addr == q.From && q.After != "" && s.rest() <= q.After
}

// GoesOn reports whether a report tells more of q's answer than the one that q goes on from, and
// has still more to tell. Then q asks for that.
func (q *Query) GoesOn(r Report) bool {
	further := q.From.Less(r.Next) || q.From == r.Next && q.After < r.After // the zero address is less than all
	if !r.Next.IsValid() || !further || len(r.After) > maxAfter {
		return false
	}
	q.From, q.After = r.Next, r.After
	return true
}

// String returns r as [Registration.Report] has it. Sightings, in order of [Sighting.Compare], that
// have no room are left out, and Next and After say so. If Parts is false, all of an address are
// told, or none. Where they have no room and the rest takes more than half of it, Asked is left
// out, which costs those who wait some minutes, and then why all but the first networks cannot be
// read: else a report would go on in very many parts.
func (r Report) String() string {
	r.clip()
	running, asked, unseen := len(r.Running), 0, len(r.Unseen)
	for _, pods := range r.Asked {
		asked += len(pods)
	}
	if r.crowds() {
		r.Asked = nil
	}
	if r.crowds() {
		for i := mostWhy; i < unseen; i++ {
			r.Unseen[i].Why = ""
		}
		r.Unseen = slices.Compact(r.Unseen)
	}
	if text, ok := r.fit(); ok {
		return text
	}
	why := fmt.Sprintf("%d pods run, and %d have asked Tenure: too many for a report", running, asked)
	if unseen > 0 {
		why = fmt.Sprintf("%s; of %d networks something cannot be read: too many for a report", r.Unseen[0].Why, unseen)
	}
	return jsonText(Report{ID: r.ID, Unread: why})
}

// mostWhy is of how many networks a report that is too long says why they cannot be read.
const mostWhy = 4

// crowds reports whether r has no room, and the rest of it takes more than half of that of the
// sightings.
func (r Report) crowds() bool {
	if len(jsonText(r)) <= MaxReport {
		return false
	}
	r.Has = nil
	return len(jsonText(r)) > MaxReport/2
}

// fit returns r with as many sightings as there is room for; ok is false if there is room for none.
func (r Report) fit() (text string, ok bool) {
	text = jsonText(r)
	for all := r.Has; len(text) > MaxReport && len(r.Has) > 0; text = jsonText(r) {
		keep := len(r.Has) / 2
		r.Next, r.After = all[keep].Addr, ""
		for !r.Parts && keep > 0 && all[keep-1].Addr == r.Next {
			keep--
		}
		if keep > 0 && all[keep-1].Addr == r.Next {
			r.After = all[keep-1].rest()
		}
		r.Has = all[:keep]
	}
	return text, len(text) <= MaxReport && (!r.Next.IsValid() || len(r.Has) > 0)
}

// several is how the UID begins of the grantee of an address that several pods are said to have by
// another IPAM. No pod has such a UID.
const several = "several/"

// ToSeveral returns the grantee of an address that the pod g is said to have by another IPAM, and
// other pods too. It is kept from all, and counts as one of g's.
func (g Grantee) ToSeveral() Grantee {
	g.UID = several + g.UID.OfPod()
	return g
}

// Several reports whether u is the UID of such a grantee.
func (u UID) Several() bool { return strings.HasPrefix(string(u), several) }

// OfPod returns the UID of the pod that an address is kept for, or is kept from all in the name of.
func (u UID) OfPod() UID { return UID(strings.TrimPrefix(string(u), several)) }

// clip keeps of what is said for people the first bytes: what to do about it follows.
func (r *Report) clip() {
	clip := func(text string) string {
		const most = 1024
		return strings.ToValidUTF8(text[:min(len(text), most)], "")
	}
	r.Unread, r.Unseen = clip(r.Unread), slices.Clone(r.Unseen)
	for i := range r.Unseen {
		r.Unseen[i].Why = clip(r.Unseen[i].Why)
	}
}

// ParseReport is the inverse of [Report.String]; the empty text is no report.
func ParseReport(text string) (r Report, ok bool, err error) {
	if text == "" {
		return Report{}, false, nil
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return Report{}, false, fmt.Errorf("report: %w", err)
	}
	r.clip()
	return r, true, nil
}

// jsonText encodes what has nothing that JSON cannot hold.
func jsonText(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("protocol: encode %T: %v", v, err))
	}
	return string(text)
}
