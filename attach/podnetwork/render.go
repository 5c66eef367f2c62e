package podnetwork

import (
	"encoding/json"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
)

// A Rendered is what is made of the parameters of a PodNetwork or a PodNetworkAttachment: the
// configuration and the annotations of a NetworkAttachmentDefinition.
type Rendered struct {
	Config      string
	Annotations map[string]string
}

// config is a network's configuration: of one plugin, or a list of plugins.
type config struct {
	CNIVersion string `json:"cniVersion"`
	Name       string `json:"name"`
	*plugin
	Plugins []any `json:"plugins,omitempty"`
}

// plugin is the configuration of one of the CNI's reference plugins, or of sriov.
type plugin struct {
	Type string `json:"type"`
	// Capabilities are of definitions of VIFs alone.
	Capabilities map[string]bool        `json:"capabilities,omitempty"`
	Master       v1alpha1.InterfaceName `json:"master,omitempty"`
	Mode         string                 `json:"mode,omitempty"`
	VLANID       int32                  `json:"vlanId,omitempty"` // of the plugin vlan
	Bridge       v1alpha1.InterfaceName `json:"bridge,omitempty"`
	VLAN         int32                  `json:"vlan,omitempty"` // of bridge and sriov
	HairpinMode  bool                   `json:"hairpinMode,omitempty"`
	MACSpoofChk  bool                   `json:"macspoofchk,omitempty"` // of bridge
	SpoofChk     string                 `json:"spoofchk,omitempty"`    // of sriov
	Trust        string                 `json:"trust,omitempty"`
	MTU          int32                  `json:"mtu,omitempty"`
	IPAM         *ipam                  `json:"ipam,omitempty"`
}

// limiter is the configuration of the plugin bandwidth.
type limiter struct {
	Type string `json:"type"`
	v1alpha1.Bandwidth
}

type ipam struct {
	Type string `json:"type"`
	Pool string `json:"pool"`
}

// Render makes the definition of that name, of a PodNetwork or an attachment of it. The CNI
// network has the definition's name, so that no claim for another network means it. pool is the
// IPPool that gives addresses; empty: none are given.
func Render(name string, s v1alpha1.InterfaceParametersSpec, pool string) Rendered {
	return render(name, s, pool, nil)
}

func render(name string, s v1alpha1.InterfaceParametersSpec, pool string, capabilities map[string]bool) Rendered {
	c := plugin{Type: pluginOf(s), Capabilities: capabilities, MTU: s.MTU}
	network := config{CNIVersion: "1.0.0", Name: name, plugin: &c}
	// Pods do not select it by its own name: a PodNetwork has rules of its own for who may use it.
	annotations := map[string]string{npwg.AnnotationNamespaces: ""}
	switch {
	case s.Macvlan != nil:
		p := s.Macvlan
		c.Master, c.Mode = p.Master, p.Mode
	case s.IPvlan != nil:
		p := s.IPvlan
		c.Master, c.Mode = p.Master, p.Mode
	case s.Bridge != nil:
		p := s.Bridge
		c.Bridge, c.VLAN, c.HairpinMode, c.MACSpoofChk = p.Bridge, p.VLAN, p.Hairpin, p.CheckMAC
		if p.Bandwidth != nil {
			network.plugin, network.Plugins = nil, []any{&c, limiter{"bandwidth", withBursts(*p.Bandwidth)}}
		}
	case s.VLAN != nil:
		p := s.VLAN
		c.Master, c.VLANID = p.Master, p.ID
	case s.SRIOV != nil:
		p := s.SRIOV
		c.VLAN, c.SpoofChk, c.Trust = p.VLAN, onOff(p.CheckMAC), onOff(p.Trust)
		annotations[npwg.AnnotationResource] = p.ResourceName
	}
	if pool != "" {
		c.IPAM = &ipam{Type: poolspec.Type, Pool: pool}
	}
	raw, err := json.Marshal(network)
	if err != nil { // there is no string that JSON cannot hold
		panic("podnetwork: " + err.Error())
	}
	return Rendered{Config: string(raw), Annotations: annotations}
}

func onOff(p *bool) string {
	switch {
	case p == nil:
		return ""
	case *p:
		return "on"
	}
	return "off"
}
