package podnetwork

import (
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/attach/facts"
)

// CheckParameters checks the InterfaceParameters that a PodNetwork names: they must say where the
// network leads. The error is a [*ParamsError].
func CheckParameters(at facts.Ref, s v1alpha1.InterfaceParametersSpec) error {
	for _, k := range keysOfNetwork(&s) {
		if k.needed && !k.set {
			return Invalid("InterfaceParameters %s/%s: spec.%s is missing, which a PodNetwork of type %s needs: make other InterfaceParameters and another PodNetwork", at.Namespace, at.Name, k.name, s.Type)
		}
	}
	return nil
}

// A key of a network is one that its attachments may not have: it says where the network leads, or
// it concerns more than the pod's own interface. One mode of ipvlan, or macvlan's passthru, is that
// of all pods behind an interface of the node; trust, and no check of hardware addresses, let a pod
// be another.
type key struct {
	name        string
	set, needed bool
}

// keysOfNetwork returns the keys of s's type that are a network's.
func keysOfNetwork(s *v1alpha1.InterfaceParametersSpec) []key {
	switch s.Type {
	case "macvlan":
		p := orZero(s.Macvlan)
		return []key{{"macvlan.master", p.Master != "", true}, {"macvlan.mode", p.Mode != "", false}}
	case "ipvlan":
		p := orZero(s.IPvlan)
		return []key{{"ipvlan.master", p.Master != "", true}, {"ipvlan.mode", p.Mode != "", false}}
	case "bridge":
		p := orZero(s.Bridge)
		return []key{{"bridge.bridge", p.Bridge != "", true}, {"bridge.vlan", p.VLAN != 0, false}}
	case "vlan":
		p := orZero(s.VLAN)
		return []key{{"vlan.master", p.Master != "", true}, {"vlan.id", p.ID != 0, true}}
	case "sriov":
		p := orZero(s.SRIOV)
		return []key{
			{"sriov.resourceName", p.ResourceName != "", true}, {"sriov.vlan", p.VLAN != 0, false},
			{"sriov.trust", p.Trust != nil, false}, {"sriov.checkMAC=false", p.CheckMAC != nil && !*p.CheckMAC, false},
		}
	}
	return nil
}

func orZero[T any](p *T) (zero T) {
	if p == nil {
		return zero
	}
	return *p
}

// Vary returns the parameters of a network, which have passed [CheckParameters], as those of an
// attachment change them. at is where the attachment's own are. They may have no key of a network.
// The error is a [*ParamsError].
func Vary(network, own v1alpha1.InterfaceParametersSpec, at facts.Ref) (v1alpha1.InterfaceParametersSpec, error) {
	if own.Type != network.Type {
		return own, Invalid("InterfaceParameters %s/%s: spec.type is %s, and the network's is %s: an attachment keeps the network's type", at.Namespace, at.Name, own.Type, network.Type)
	}
	for _, k := range keysOfNetwork(&own) {
		if k.set {
			return own, Invalid("InterfaceParameters %s/%s: spec.%s is for the PodNetwork to say, since it concerns more than the pod's own interface: make InterfaceParameters without it for the attachment", at.Namespace, at.Name, k.name)
		}
	}
	s := *network.DeepCopy()
	set(&s.MTU, own.MTU)
	switch s.Type {
	case "bridge":
		p := orZero(own.Bridge)
		set(&s.Bridge.Hairpin, p.Hairpin)
		set(&s.Bridge.CheckMAC, p.CheckMAC)
	case "sriov":
		set(&s.SRIOV.CheckMAC, orZero(own.SRIOV).CheckMAC)
	}
	return s, nil
}

// set has to be value, unless that is zero.
func set[T comparable](to *T, value T) {
	var zero T
	if value != zero {
		*to = value
	}
}
