package protocol

import (
	"encoding/json"
	"fmt"
	"net/netip"
)

// A Look is what the controller asks a node's agent, on the node's registration: which addresses
// in Ranges the pods of the node have, whoever gave them, and which pods still run there.
type Look struct {
	// ID is new for each look; the answer carries it.
	ID string `json:"id"`
	// Ranges are "first-last", inclusive.
	Ranges []string `json:"ranges,omitempty"`
	// HostLocal are the networks whose files of host-local the agent reads.
	HostLocal []HostLocal `json:"hostLocal,omitempty"`
}

// HostLocal is a network that host-local may have given addresses of.
type HostLocal struct {
	Network string `json:"network"`
	// DataDir is host-local's directory; "" is its default.
	DataDir string `json:"dataDir,omitempty"`
}

// String returns l as [Registration.Look] has it.
func (l Look) String() string { return jsonText(l) }

// ParseLook is the inverse of [Look.String].
func ParseLook(text string) (l Look, err error) {
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		return Look{}, fmt.Errorf("look: %w", err)
	}
	return l, nil
}

// A Report is an agent's answer to a [Look].
type Report struct {
	// ID is that of the look.
	ID string `json:"id"`
	// Running are the UIDs, as the runtime knows them, of the pods that have a sandbox
	// on the node, or may have one.
	Running []UID `json:"running,omitempty"`
	// Has are the addresses, within the look's ranges, of those sandboxes, and those that Tenure
	// has given here or taken back of late.
	Has []Sighting `json:"has,omitempty"`
	// Asking are the UIDs of the pods whose ADD has come to this agent of late: another
	// IPAM's is over by then.
	Asking []UID `json:"asking,omitempty"`
	// Unread says, for people, what could not be read; empty if nothing. The answer
	// may then lack something.
	Unread string `json:"unread,omitempty"`
	// Unseen are, of that, whole places: of what is there nothing is known.
	Unseen []Unseen `json:"unseen,omitempty"`
}

// Unseen is a place that an agent was to read, and cannot: host-local's files of a network.
// Without a network it is all that the report is made of.
type Unseen struct {
	HostLocal
	Why string `json:"why"`
}

// A Sighting is an address that a sandbox on a node has, or had of late by Tenure.
type Sighting struct {
	Addr netip.Addr `json:"address"`
	// Pod is the pod, as far as the runtime has told; the UID is that of the runtime.
	Pod PodRef `json:"pod,omitzero"`
	// Sandbox is the container ID, and Interface the interface.
	Sandbox   string `json:"sandbox,omitempty"`
	Interface string `json:"interface,omitempty"`
	// Network is the network's name, and IPAM the type of the IPAM that gave the address.
	Network string `json:"network,omitempty"`
	IPAM    string `json:"ipam,omitempty"`
}

// MaxReport is how long a report's text may be, in bytes: an object's annotations have
// 256 KiB together.
const MaxReport = 192 << 10

// String returns r as [Registration.Report] has it. What is too long loses its sightings, and
// says so.
func (r Report) String() string {
	text := jsonText(r)
	if len(text) <= MaxReport {
		return text
	}
	why := fmt.Sprintf("there are %d addresses, too many for one report", len(r.Has))
	return jsonText(Report{ID: r.ID, Running: r.Running, Asking: r.Asking, Unread: why, Unseen: []Unseen{{Why: why}}})
}

// ParseReport is the inverse of [Report.String]; the empty text is no report.
func ParseReport(text string) (r Report, ok bool, err error) {
	if text == "" {
		return Report{}, false, nil
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return Report{}, false, fmt.Errorf("report: %w", err)
	}
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
