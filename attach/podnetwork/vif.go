package podnetwork

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
)

// RenderVIF is [Render] for interfaces that the control plane decides about: where the plugin can
// be given a hardware address, the definition says so by the capability "mac".
func RenderVIF(name string, s v1alpha1.InterfaceParametersSpec, pool string) Rendered {
	var capabilities map[string]bool
	if TakesMAC(s) {
		capabilities = map[string]bool{"mac": true}
	}
	return render(name, s, pool, capabilities)
}

// TakesMAC reports whether the plugin can be given a hardware address.
func TakesMAC(s v1alpha1.InterfaceParametersSpec) bool {
	return s.Macvlan != nil || s.Bridge != nil || s.SRIOV != nil
}

// ReadInline reads InterfaceParameters that stand in a text and not in an object of their own. It
// checks what the API server checks of those. The error says what is wrong, and not where the text
// stands.
func ReadInline(raw []byte) (v1alpha1.InterfaceParametersSpec, error) {
	var s v1alpha1.InterfaceParametersSpec
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&s); err != nil {
		return s, fmt.Errorf("they cannot be read: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return s, errors.New("something follows them")
	}
	plugins := 0
	for _, is := range []bool{s.Macvlan != nil, s.IPvlan != nil, s.Bridge != nil, s.VLAN != nil, s.SRIOV != nil} {
		if is {
			plugins++
		}
	}
	if plugins != 1 {
		return s, fmt.Errorf("they are of %d plugins: give one of macvlan, ipvlan, bridge, vlan and sriov", plugins)
	}
	if missing := lacks(s); missing != "" {
		return s, fmt.Errorf("%s is missing", missing)
	}
	return s, checkSchema(s)
}

// lacks returns the key that s has to have, to say where a network leads, and does not have; empty:
// it has all of them.
func lacks(s v1alpha1.InterfaceParametersSpec) string {
	all := keysOfNetwork(&s)
	if i := slices.IndexFunc(all, func(k key) bool { return k.needed && !k.set }); i >= 0 {
		return all[i].name
	}
	return ""
}

// checkSchema checks the values that s has as the schema of InterfaceParameters does.
func checkSchema(s v1alpha1.InterfaceParametersSpec) error {
	if s.MTU != 0 && (s.MTU < 68 || s.MTU > 65535) {
		return fmt.Errorf("mtu is %d: give one from 68 to 65535", s.MTU)
	}
	switch {
	case s.Macvlan != nil:
		return errors.Join(checkName("macvlan.master", s.Macvlan.Master), checkMode("macvlan.mode", s.Macvlan.Mode, "bridge", "private", "vepa", "passthru"))
	case s.IPvlan != nil:
		return errors.Join(checkName("ipvlan.master", s.IPvlan.Master), checkMode("ipvlan.mode", s.IPvlan.Mode, "l2", "l3", "l3s"))
	case s.Bridge != nil:
		return errors.Join(checkName("bridge.bridge", s.Bridge.Bridge), checkVLAN("bridge.vlan", s.Bridge.VLAN), checkBandwidth(s.Bridge.Bandwidth))
	case s.VLAN != nil:
		return errors.Join(checkName("vlan.master", s.VLAN.Master), checkVLAN("vlan.id", s.VLAN.ID))
	case s.SRIOV != nil:
		if len(s.SRIOV.ResourceName) > 317 {
			return errors.New("sriov.resourceName is longer than 317 characters")
		}
		return checkVLAN("sriov.vlan", s.SRIOV.VLAN)
	}
	return nil
}

func checkName(what string, name v1alpha1.InterfaceName) error {
	odd := func(r rune) bool { return strings.ContainsRune("/:%", r) || unicode.IsSpace(r) }
	if len(name) > 15 || strings.ContainsFunc(string(name), odd) {
		return fmt.Errorf("%s is %.40q, which is no name of an interface", what, name)
	}
	return nil
}

func checkMode(what, mode string, known ...string) error {
	if mode != "" && !slices.Contains(known, mode) {
		return fmt.Errorf("%s is %.40q: give one of %s", what, mode, strings.Join(known, ", "))
	}
	return nil
}

func checkBandwidth(b *v1alpha1.Bandwidth) error {
	if b == nil {
		return nil
	}
	if *b == (v1alpha1.Bandwidth{}) {
		return errors.New("bridge.bandwidth is empty: give ingressRate, egressRate or both")
	}
	const maxRate, maxBurst = 1_000_000_000_000_000, 34_359_738_359
	check := func(what string, value, maximum int64) error {
		if value != 0 && (value < 1000 || value > maximum) {
			return fmt.Errorf("bridge.bandwidth.%s is %d: give one from 1000 to %d", what, value, maximum)
		}
		return nil
	}
	needs := func(what string, rate, burst int64) error {
		if burst != 0 && rate == 0 {
			return fmt.Errorf("bridge.bandwidth.%sBurst needs %sRate", what, what)
		}
		return nil
	}
	return errors.Join(
		check("ingressRate", b.IngressRate, maxRate), check("ingressBurst", b.IngressBurst, maxBurst), needs("ingress", b.IngressRate, b.IngressBurst),
		check("egressRate", b.EgressRate, maxRate), check("egressBurst", b.EgressBurst, maxBurst), needs("egress", b.EgressRate, b.EgressBurst),
	)
}

func checkVLAN(what string, id int32) error {
	if id < 0 || id > 4094 {
		return fmt.Errorf("%s is %d: give one from 1 to 4094", what, id)
	}
	return nil
}
