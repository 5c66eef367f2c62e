package podnetwork

import (
	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/attach/facts"
)

// CheckVIFParameters checks the InterfaceParameters that a definition of VIFs names, as
// [CheckParameters] does those of a PodNetwork.
func CheckVIFParameters(at facts.Ref, s v1alpha1.InterfaceParametersSpec) error {
	return check(at, s, "the plugin", ", and name them")
}

// CheckParameters checks the InterfaceParameters that a PodNetwork names: they must say where the
// network leads. The error is a [*ParamsError].
func CheckParameters(at facts.Ref, s v1alpha1.InterfaceParametersSpec) error {
	return check(at, s, "a PodNetwork by the plugin", " and another PodNetwork")
}

// check checks InterfaceParameters, and says who needs what is missing, and what to make besides.
func check(at facts.Ref, s v1alpha1.InterfaceParametersSpec, who, besides string) error {
	if pluginOf(s) == "" {
		return Invalid("InterfaceParameters %s/%s: they are of a plugin that this version does not know", at.Namespace, at.Name)
	}
	if missing := lacks(s); missing != "" {
		return Invalid("InterfaceParameters %s/%s: spec.%s is missing, which %s %s needs: make other InterfaceParameters%s", at.Namespace, at.Name, missing, who, pluginOf(s), besides)
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

// keysOfNetwork returns the keys of s's plugin that are a network's.
func keysOfNetwork(s *v1alpha1.InterfaceParametersSpec) []key {
	switch {
	case s.Macvlan != nil:
		p := s.Macvlan
		return []key{{"macvlan.master", p.Master != "", true}, {"macvlan.mode", p.Mode != "", false}}
	case s.IPvlan != nil:
		p := s.IPvlan
		return []key{{"ipvlan.master", p.Master != "", true}, {"ipvlan.mode", p.Mode != "", false}}
	case s.Bridge != nil:
		p := s.Bridge
		return []key{{"bridge.bridge", p.Bridge != "", true}, {"bridge.vlan", p.VLAN != 0, false}}
	case s.VLAN != nil:
		p := s.VLAN
		return []key{{"vlan.master", p.Master != "", true}, {"vlan.id", p.ID != 0, true}}
	case s.SRIOV != nil:
		p := s.SRIOV
		return []key{
			{"sriov.resourceName", p.ResourceName != "", true}, {"sriov.vlan", p.VLAN != 0, false},
			{"sriov.trust", p.Trust != nil, false}, {"sriov.checkMAC=false", p.CheckMAC != nil && !*p.CheckMAC, false},
		}
	}
	return nil
}

// pluginOf returns the CNI plugin that s is for.
func pluginOf(s v1alpha1.InterfaceParametersSpec) string {
	switch {
	case s.Macvlan != nil:
		return "macvlan"
	case s.IPvlan != nil:
		return "ipvlan"
	case s.Bridge != nil:
		return "bridge"
	case s.VLAN != nil:
		return "vlan"
	case s.SRIOV != nil:
		return "sriov"
	}
	return ""
}

// Vary returns the parameters of a network, which have passed [CheckParameters], as those of an
// attachment change them. at is where the attachment's own are. They may have no key of a network.
// The error is a [*ParamsError].
func Vary(network, own v1alpha1.InterfaceParametersSpec, at facts.Ref) (v1alpha1.InterfaceParametersSpec, error) {
	if is, was := pluginOf(own), pluginOf(network); is != was {
		return own, Invalid("InterfaceParameters %s/%s: they are of the plugin %s, and the network's of %s: an attachment keeps the network's plugin", at.Namespace, at.Name, is, was)
	}
	for _, k := range keysOfNetwork(&own) {
		if k.set {
			return own, Invalid("InterfaceParameters %s/%s: spec.%s is for the PodNetwork to say, since it concerns more than the pod's own interface: make InterfaceParameters without it for the attachment", at.Namespace, at.Name, k.name)
		}
	}
	s := *network.DeepCopy()
	set(&s.MTU, own.MTU)
	switch {
	case s.Bridge != nil:
		set(&s.Bridge.Hairpin, own.Bridge.Hairpin)
		set(&s.Bridge.CheckMAC, own.Bridge.CheckMAC)
		if own.Bridge.Bandwidth != nil {
			b, err := lower(s.Bridge.Bandwidth, *own.Bridge.Bandwidth, at)
			if err != nil {
				return own, err
			}
			s.Bridge.Bandwidth = &b
		}
	case s.SRIOV != nil:
		set(&s.SRIOV.CheckMAC, own.SRIOV.CheckMAC)
	}
	return s, nil
}

// lower returns the bandwidth of a network, which may have none, as that of an attachment changes
// it. The attachment may not go beyond the network's.
func lower(network *v1alpha1.Bandwidth, own v1alpha1.Bandwidth, at facts.Ref) (b v1alpha1.Bandwidth, err error) {
	if network != nil {
		b = withBursts(*network)
	}
	for _, f := range []struct {
		name string
		to   *int64
		own  int64
	}{
		{"ingressRate", &b.IngressRate, own.IngressRate}, {"ingressBurst", &b.IngressBurst, own.IngressBurst},
		{"egressRate", &b.EgressRate, own.EgressRate}, {"egressBurst", &b.EgressBurst, own.EgressBurst},
	} {
		if *f.to != 0 && f.own > *f.to {
			return b, Invalid("InterfaceParameters %s/%s: spec.bridge.bandwidth.%s is %d, and the PodNetwork's is %d: give one that is not above it",
				at.Namespace, at.Name, f.name, f.own, *f.to)
		}
		set(f.to, f.own)
	}
	return b, nil
}

// withBursts returns b with a burst for each rate: the plugin bandwidth wants one.
func withBursts(b v1alpha1.Bandwidth) v1alpha1.Bandwidth {
	if b.IngressRate != 0 && b.IngressBurst == 0 {
		b.IngressBurst = npwg.DefaultBurst
	}
	if b.EgressRate != 0 && b.EgressBurst == 0 {
		b.EgressBurst = npwg.DefaultBurst
	}
	return b
}

// set has to be value, unless that is zero.
func set[T comparable](to *T, value T) {
	var zero T
	if value != zero {
		*to = value
	}
}
