package plan

import (
	"fmt"
	"slices"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/attach/facts"
)

// argClaim is the key of CNI_ARGS that tells Tenure's IPAM plugin which claim an interface has that
// no element of the pod's annotation names: poolspec.ArgClaim.
const argClaim = "TENURE_CLAIM"

// vif returns what the agent says of element i, if the control plane decides its interface.
func (m *maker) vif(i int) (facts.VIF, bool) {
	at := slices.IndexFunc(m.answer.VIFs, func(v facts.VIF) bool { return v.Element == i })
	if at < 0 {
		return facts.VIF{}, false
	}
	return m.answer.VIFs[at], true
}

// nameVIFs gives the elements whose interfaces the control plane decides their names.
func (m *maker) nameVIFs(selections []npwg.Selection) {
	if m.answer.NoVIFs {
		m.warn(ReasonNoVIFs, "a definition that annotation %s names has the annotation tenure.dev/vif or %s, which has no effect: VIFs are not served on this node: agent and controller need the flag --vifs",
			npwg.AnnotationNetworks, annotationKuryr)
	}
	for i := range selections {
		if v, ok := m.vif(i); ok {
			selections[i].Interface = v.Interface
		}
	}
}

// addVIF plans an element whose interface the control plane decides: by the definition that the
// controller has made, and with the addresses of the claim.
func (m *maker) addVIF(where string, sel npwg.Selection, v facts.VIF) {
	ref := facts.Ref{Namespace: sel.Namespace, Name: sel.Name}
	m.take(where, ref.String(), sel.Interface)
	selected := m.definition(ref)
	missing := Step{Name: ref.String(), IfName: sel.Interface, Claim: v.Claim}
	if why := m.whyForbidden(selected, m.config.GlobalNamespaces...); why != "" {
		m.fail(where, ref.String(), why, howToAllow)
		m.miss(missing)
		return
	}
	if v.Refused != "" {
		m.addFault(&Error{Where: where, Network: ref.String(), Why: v.Refused, Later: v.Later})
		m.miss(missing)
		return
	}
	d, l := m.findMade(where, ref.String(), v.Definition, v.MadeFor)
	if l == nil {
		m.miss(missing)
		return
	}
	step := Step{
		Name: ref.String(), IfName: sel.Interface, Network: l.name, DefaultRoute: sel.DefaultRoute, GUID: sel.GUID, Claim: v.Claim,
		Args: append(m.argsOfOthers(), Arg{Key: argClaim, Value: v.Claim}),
	}
	sel.MAC = v.MAC
	step.Requested = requested(sel)
	sel.IPs, sel.MAC, sel.Claim = nil, "", v.Claim // the claim has the addresses
	m.request(where, &step, l, sel)
	switch declared := l.declares("mac"); {
	case v.MAC != "" && declared: // in either version of the specification: the definition is Tenure's own
		step.capability("mac", quote(v.MAC))
	case v.MAC != "":
		m.fail(where, ref.String(), "it has the hardware address "+v.MAC+", and its plugin cannot be given one", "remove mac")
	}
	m.addDevice(where, &step, l, d)
	m.sayUnknown(where, sel)
	m.add(where, step, l)
}

// findMade returns a definition that the controller makes, and its configuration. madeFor is what
// its annotation must say; empty: anything. l is nil if it cannot be used, and then it has said
// why.
func (m *maker) findMade(where, network string, ref facts.Ref, madeFor string) (d facts.Definition, l *list) {
	d = m.definition(ref)
	if d.Missing != "" {
		m.addFault(&Error{
			Where: where, Network: network, Why: d.Missing, Later: true,
			Do: "create the definition; the controller makes those of InterfaceParameters again",
		})
		return d, nil
	}
	if made := d.Annotations[podnetwork.AnnotationMadeFor]; madeFor != "" && made != madeFor {
		m.addFault(&Error{Where: where, Network: network, Why: fmt.Sprintf("definition %v was made for another object than this one, or for what it said before", d.Ref), Later: true})
		return d, nil
	}
	l, err := m.listOf(d)
	if err != nil {
		m.failList(where, network, err)
		return d, nil
	}
	return d, l
}
