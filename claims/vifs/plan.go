package vifs

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/vif"
)

// Reasons of the Events about a pod.
const (
	// ReasonRefused: the pod gets none of its interfaces, and has to be made otherwise.
	ReasonRefused = "VIFsRefused"
	// ReasonNotReady: the pod waits for something that may still come.
	ReasonNotReady = "VIFsNotReady"
	// ReasonTaken: a claim of a name that the pod needs is somebody else's.
	ReasonTaken = "VIFClaimTaken"
	// ReasonKuryrLeft: the annotation for programs made for Kuryr cannot be completed.
	ReasonKuryrLeft = "KuryrAnnotationLeft"
)

// maxElements is how many elements of a pod may select such definitions.
const maxElements = 32

// defaultInterface is the name of the interface of the pod's default network.
const defaultInterface = "eth0"

// facts are what a plan is made of.
type facts struct {
	namespace, name string
	uid             types.UID
	// static says that a kubelet runs the pod by itself, hostNetwork that it has its node's own
	// network.
	static, hostNetwork bool
	// written is the map that the pod has, and kuryr what it has in Kuryr's words.
	written, kuryr string
	// asksKuryr says that Kuryr's words are asked for.
	asksKuryr bool
	// unreadable says why the pod's annotation cannot be read.
	unreadable error
	// elements are those that select a VIF definition, and others the names of the
	// interfaces of all other elements.
	elements []element
	others   []string
}

// An element is one that selects a VIF definition.
type element struct {
	npwg.Selection
	ifName string
	// forbidden says why the pod may not use the definition; empty: it may.
	forbidden string
	// network is nil before the definition is made that has the configuration.
	network *network
	// claim is nil if there is none yet.
	claim *claim
}

// claim is what is known of an IPAMClaim.
type claim struct {
	uid             types.UID
	network, ifName string
	owners          []metav1.OwnerReference
	deleting        bool
	ips             []string
	// port is what Neutron has made for the claim, and portFault why that cannot be read.
	// portShown says that Neutron has shown this port as the claim's, with this hardware address.
	port      vif.Port
	portFault error
	portShown bool
	// failed says why the claim has no addresses that it may use; empty: it has them, or nothing is
	// known yet.
	failed string
}

// wanted is a claim that is to be made.
type wanted struct{ name, network, ifName, requested string }

// fault is what people are to be told. network is the definition that it is about, and claim the
// claim; empty: it is about neither, or about none alone. patient says that it may pass in a
// moment, and is to be told if it does not.
type fault struct {
	reason, message, network, claim string
	patient                         bool
}

// plan is what is to be done.
type plan struct {
	create []wanted
	// write has the annotations of the pod that are to be written: the map, which is complete, and
	// the same in Kuryr's words.
	write  map[string]string
	faults []fault
}

// decide says what is to be done about the claims and the map of a pod.
func decide(f facts) (p plan) {
	if len(f.elements) == 0 {
		return p
	}
	if why := f.refused(); why != "" {
		return plan{faults: []fault{{reason: ReasonRefused, message: why + ": no interface is made"}}}
	}
	all, kuryr := vif.Map{}, map[string]vif.KuryrVIF{}
	for _, e := range f.elements {
		if v, ready := p.look(f, e); ready {
			all[e.ifName], kuryr[e.ifName] = v, e.kuryr(v)
		}
	}
	if len(all) < len(f.elements) {
		return p
	}
	p.write = map[string]string{}
	if text := all.String(); text != f.written {
		p.write[vif.AnnotationMap] = text
	}
	if f.asksKuryr {
		p.writeKuryr(f, kuryr)
	}
	return p
}

// writeKuryr adds to p that the pod is to have its interfaces in Kuryr's words, too.
func (p *plan) writeKuryr(f facts, all map[string]vif.KuryrVIF) {
	earlier, _ := vif.ParseMap(f.written) // what cannot be read is written anew
	text, err := vif.KuryrMap(f.kuryr, earlier, all)
	switch {
	case err != nil:
		p.faults = append(p.faults, fault{reason: ReasonKuryrLeft, message: fmt.Sprintf("annotation %s is left as it is, and does not tell the interfaces: %v: remove it", vif.AnnotationKuryrMap, err)})
	case text != f.kuryr:
		p.write[vif.AnnotationKuryrMap] = text
	}
}

// refused says why the pod gets none of the interfaces, whatever comes; empty: it may get them.
func (f facts) refused() string {
	switch n := len(f.elements); {
	case f.static:
		return "a static pod has no interfaces that the control plane decides, since it has to start without one: select a network with a configuration"
	case f.hostNetwork:
		return "the pod has its node's network, and no interfaces of its own: leave hostNetwork out, or the annotation " + npwg.AnnotationNetworks
	case f.unreadable != nil:
		return fmt.Sprintf("annotation %s cannot be read: %s", npwg.AnnotationNetworks, strings.ReplaceAll(f.unreadable.Error(), "\n", "; "))
	case n > maxElements:
		return fmt.Sprintf("annotation %s has %d elements whose interfaces the control plane decides: %d can be", npwg.AnnotationNetworks, n, maxElements)
	}
	names, claims := slices.Clone(f.others), map[string]string{}
	for _, e := range f.elements {
		if e.forbidden != "" {
			return fmt.Sprintf("network %s: %s", e, e.forbidden)
		}
		if e.ifName == defaultInterface {
			return fmt.Sprintf("network %s: %s is the interface of the default network: choose another name", e, defaultInterface)
		}
		if slices.Contains(names, e.ifName) {
			return fmt.Sprintf("network %s: another element has the interface %s: choose another name", e, e.ifName)
		}
		names = append(names, e.ifName)
		if e.Claim != "" && len(e.IPs) > 0 {
			return fmt.Sprintf("network %s: it has both ips and ipam-claim-reference: keep one", e)
		}
		if by := claims[e.Claim]; e.Claim != "" && by != "" {
			return fmt.Sprintf("network %s: its claim %s is that of interface %s, too: name another claim", e, e.Claim, by)
		}
		claims[e.Claim] = e.ifName
		if e.MAC == "" || e.network == nil {
			continue
		}
		if e.network.neutron {
			return fmt.Sprintf("network %s: the addresses of IPPool %s are Neutron's, which decides the hardware address of a port as well, and lets no other through: leave mac out", e, e.network.pool)
		}
		if !e.network.takesMAC {
			return fmt.Sprintf("network %s: its plugin cannot be given the hardware address %s: leave mac out", e, e.MAC)
		}
	}
	return ""
}

// look adds to p what is to be done about one element. ready says that nothing is left to do, and
// then v is its interface.
func (p *plan) look(f facts, e element) (v vif.VIF, ready bool) {
	name := e.claimOf(f)
	say := func(patient bool, format string, args ...any) (vif.VIF, bool) {
		if patient && f.has(e) { // the pod needs nothing, and its map stays as it is
			return vif.VIF{}, false
		}
		why := fault{ReasonNotReady, fmt.Sprintf("interface %s, network %s: %s", e.ifName, e, fmt.Sprintf(format, args...)), e.String(), name, patient}
		if e.network == nil {
			why.claim = ""
		}
		p.faults = append(p.faults, why)
		return vif.VIF{}, false
	}
	later := func(format string, args ...any) (vif.VIF, bool) { return say(false, format, args...) }
	switch c := e.claim; {
	case e.network == nil:
		return say(true, "nothing is made of its definition yet: Events of the definition say why")
	case c == nil && e.Claim != "":
		return later("there is no IPAMClaim %s: make it", name)
	case c == nil:
		p.create = append(p.create, wanted{name, e.network.name, e.ifName, e.requested()})
		return v, false
	case c.deleting:
		return later("IPAMClaim %s is being deleted", name)
	}
	if why := e.notOurs(f); why != "" {
		p.faults = append(p.faults, fault{ReasonTaken, fmt.Sprintf("interface %s, network %s: IPAMClaim %s %s", e.ifName, e, name, why), e.String(), name, false})
		return v, false
	}
	switch c := e.claim; {
	case c.failed != "":
		return later("IPAMClaim %s: %s", name, c.failed)
	case len(c.ips) == 0:
		return say(true, "IPAMClaim %s has no addresses yet, and does not say why: does the controller run, and is there one network %s alone?", name, e.network.name)
	case e.network.lacks(c.ips):
		return say(true, "IPAMClaim %s has addresses that the pool of the definition has not: make the pod again, if the pool was changed", name)
	case e.network.neutron && c.portFault != nil:
		return say(true, "IPAMClaim %s: %v", name, c.portFault)
	case e.network.neutron && c.port.MAC == "":
		return say(true, "IPAMClaim %s has no annotation %s yet: the interface needs the hardware address of its port in Neutron", name, vif.AnnotationPort)
	case e.network.neutron && !c.portShown:
		return say(true, "IPAMClaim %s: Neutron has not shown the port that its annotation %s tells: see the condition SourceReady of IPPool %s",
			name, vif.AnnotationPort, e.network.pool)
	}
	return e.vif(f), true
}

// vif returns the interface of an element whose claim has all that it needs.
func (e element) vif(f facts) vif.VIF {
	ips := e.claim.ips
	v := vif.VIF{
		Network: e.String(), PodUID: string(f.uid), Claim: e.claimOf(f), ClaimUID: string(e.claim.uid), Addresses: ips,
		Gateways: e.network.gateways(ips), Routes: e.network.routesOf(ips), MAC: e.MAC, MTU: e.network.mtu,
	}
	switch {
	case e.network.neutron:
		v.MAC, v.Port = e.claim.port.MAC, e.claim.port.ID
	case v.MAC == "" && e.network.takesMAC:
		v.MAC = vif.MACOf(v.ClaimUID)
	}
	return v
}

// kuryr returns the interface with what Kuryr says of it.
func (e element) kuryr(v vif.VIF) vif.KuryrVIF {
	k := vif.KuryrVIF{VIF: v, Plugin: e.network.plugin, VLAN: e.network.vlan, NetworkID: e.network.poolUID, Nameservers: e.network.nameservers}
	if e.network.neutron {
		k.NetworkID = e.claim.port.Network
	}
	return k
}

// has reports whether the map that the pod has says what the element's interface is.
func (f facts) has(e element) bool {
	m, err := vif.ParseMap(f.written)
	v := m[e.ifName]
	return err == nil && v.PodUID == string(f.uid) && v.Claim == e.claimOf(f)
}

// claimOf returns the name of the element's claim: that which it refers to, or one of its own.
func (e element) claimOf(f facts) string {
	if e.Claim != "" {
		return e.Claim
	}
	return vif.ClaimName(f.name, string(f.uid), e.ifName)
}

// notOurs says why the claim that is there is not for the element; empty: it is.
func (e element) notOurs(f facts) string {
	c := e.claim
	switch {
	case e.Claim == "" && !owns(f.uid, c.owners):
		return "is not the pod's, and is left alone: delete it"
	case c.network != e.network.name:
		return fmt.Sprintf("is of network %q, and the interface needs one of %q", c.network, e.network.name)
	case c.ifName != "" && c.ifName != e.ifName:
		return fmt.Sprintf("is for interface %s", c.ifName)
	}
	return ""
}

// owns reports whether the pod of that UID is the only owner.
func owns(uid types.UID, owners []metav1.OwnerReference) bool {
	return len(owners) == 1 && owners[0].APIVersion == "v1" && owners[0].Kind == "Pod" && owners[0].UID == uid
}

// requested returns the addresses that the element asks for, as the annotation of a claim has them.
func (e element) requested() string {
	texts := make([]string, len(e.IPs))
	for i, ip := range e.IPs {
		texts[i] = ip.Addr.String()
	}
	return strings.Join(texts, ",")
}
