package podnetwork

import (
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/attach/facts"
)

// CheckParameters checks the InterfaceParameters that a PodNetwork names: they must say where the
// network leads. The error is a [*ParamsError].
func CheckParameters(at facts.Ref, s v1alpha1.InterfaceParametersSpec) error {
	for _, w := range whereTo(&s) {
		if w.needed && !w.set {
			return Invalid("InterfaceParameters %s/%s: spec.%s is missing, which a PodNetwork of type %s needs: make other InterfaceParameters and another PodNetwork", at.Namespace, at.Name, w.key, s.Type)
		}
	}
	return nil
}

// where is a key that says where a network leads.
type where struct {
	key         string
	set, needed bool
}

// whereTo returns the keys of s's type that say where a network leads.
func whereTo(s *v1alpha1.InterfaceParametersSpec) []where {
	switch s.Type {
	case "macvlan":
		p := orZero(s.Macvlan)
		return []where{{"macvlan.master", p.Master != "", true}}
	case "ipvlan":
		p := orZero(s.IPvlan)
		return []where{{"ipvlan.master", p.Master != "", true}}
	case "bridge":
		p := orZero(s.Bridge)
		return []where{{"bridge.bridge", p.Bridge != "", true}, {"bridge.vlan", p.VLAN != 0, false}}
	case "vlan":
		p := orZero(s.VLAN)
		return []where{{"vlan.master", p.Master != "", true}, {"vlan.id", p.ID != 0, true}}
	case "sriov":
		p := orZero(s.SRIOV)
		return []where{{"sriov.resourceName", p.ResourceName != "", true}, {"sriov.vlan", p.VLAN != 0, false}}
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
// attachment change them. at is where the attachment's own are. They may not say where the network
// leads. The error is a [*ParamsError].
func Vary(network, own v1alpha1.InterfaceParametersSpec, at facts.Ref) (v1alpha1.InterfaceParametersSpec, error) {
	if own.Type != network.Type {
		return own, Invalid("InterfaceParameters %s/%s: spec.type is %s, and the network's is %s: an attachment keeps the network's type", at.Namespace, at.Name, own.Type, network.Type)
	}
	for _, w := range whereTo(&own) {
		if w.set {
			return own, Invalid("InterfaceParameters %s/%s: spec.%s says where the network leads, which is for its PodNetwork to say: make InterfaceParameters without it for the attachment", at.Namespace, at.Name, w.key)
		}
	}
	s := *network.DeepCopy()
	set(&s.MTU, own.MTU)
	switch s.Type {
	case "macvlan":
		set(&s.Macvlan.Mode, orZero(own.Macvlan).Mode)
	case "ipvlan":
		set(&s.IPvlan.Mode, orZero(own.IPvlan).Mode)
	case "bridge":
		p := orZero(own.Bridge)
		set(&s.Bridge.Hairpin, p.Hairpin)
		set(&s.Bridge.CheckMAC, p.CheckMAC)
	case "sriov":
		p := orZero(own.SRIOV)
		set(&s.SRIOV.CheckMAC, p.CheckMAC)
		set(&s.SRIOV.Trust, p.Trust)
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
