package agentapi

import (
	"net/netip"

	"github.com/tenure-ipam/tenure/ipam/lean/plainjson"
)

// A ProbeAsk is what a Probe has in its Ask: with Of the question which addresses of these
// attachments are to be asked for on their segments, else what came of that. The answer to the
// question is a list of [Unproved], in Facts; none where there is nothing to ask for.
type ProbeAsk struct {
	Of []Interface `json:"of,omitempty"`
	// Proved says that no stranger has answered for any address of the answer.
	Proved bool `json:"proved,omitempty"`
	// Found are the addresses that strangers have.
	Found []Stranger `json:"found,omitempty"`
}

// An Interface names an attachment of the request's container.
type Interface struct {
	Network string `json:"network"`
	IfName  string `json:"ifName"`
}

// An Unproved is an address that this node gives for the first time.
type Unproved struct {
	IfName string     `json:"ifName"`
	Addr   netip.Addr `json:"address"`
}

// A Stranger is somebody on a segment who has an address that a pod was given.
type Stranger struct {
	Addr netip.Addr `json:"address"`
	MAC  string     `json:"mac"`
}

// AppendTo appends p's JSON to b, of a question alone: a plugin writes one for each ADD.
func (p ProbeAsk) AppendTo(b []byte) []byte {
	b = append(b, `{"of":[`...)
	for i, of := range p.Of {
		if i > 0 {
			b = append(b, ',')
		}
		b = plainjson.AppendText(append(b, `{"network":`...), of.Network)
		b = append(plainjson.AppendText(plainjson.AppendKey(b, "ifName"), of.IfName), '}')
	}
	return append(b, `]}`...)
}
