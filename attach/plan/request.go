package plan

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"github.com/tenure-ipam/tenure/api/npwg"
)

// request puts what an element asks for into the step and its list: by
// runtimeConfig, or in version 1 by args.cni.
func (m *maker) request(where string, step *Step, l *list, sel npwg.Selection) {
	if sel.Claim != "" && len(sel.IPs) > 0 && !m.config.AllowIPsWithClaim {
		m.fail(where, step.Name, "it has both ips and ipam-claim-reference (NPWG 4.1.2.1.11.1)", "keep one of them")
	}
	args, v1 := sel.CNIArgs, m.version(sel.Namespace, sel.Name) == npwg.V1
	if v1 {
		args = argsOfV1(sel)
	} else {
		m.requestCapabilities(where, step, l, sel)
	}
	if len(args) == 0 {
		return
	}
	if !v1 {
		step.CNIArgs = encode(args)
	}
	for i, plugin := range l.plugins {
		if err := mergeArgs(plugin.members, args); err != nil {
			m.failList(where, step.Name, fmt.Errorf("plugin %d: %w", i+1, err))
		}
	}
}

// requestCapabilities adds capability arguments, each of which at least one plugin
// must take.
func (m *maker) requestCapabilities(where string, step *Step, l *list, sel npwg.Selection) {
	add := func(key, capability, rule string, value any) {
		switch declared := l.declares(capability); {
		case !declared && m.requestByArgs(where, step, key, sel):
			return
		case !declared:
			m.fail(where, step.Name, fmt.Sprintf("it asks for %s, and no plugin of the network declares the capability %s (NPWG %s)", key, capability, rule),
				fmt.Sprintf(`add "capabilities": {"%s": true} to the plugin that takes it, or remove the key`, capability))
		}
		step.capability(capability, encode(value))
	}
	if len(sel.IPs) > 0 {
		add("ips", "ips", "4.1.2.1.3.2", ipTexts(sel))
	}
	if sel.MAC != "" {
		add("mac", "mac", "4.1.2.1.4.2", sel.MAC)
	}
	if len(sel.PortMappings) > 0 {
		add("portMappings", "portMappings", "4.1.2.1.7.2", sel.PortMappings)
	}
	if sel.Bandwidth != nil {
		add("bandwidth", "bandwidth", "4.1.2.1.8.2", withBursts(*sel.Bandwidth))
	}
	if sel.GUID != "" {
		add("infiniband-guid", "infinibandGUID", "4.1.2.1.10.2", sel.GUID)
	}
}

// requestByArgs asks by CNI_ARGS for what a key asks for, and reports whether it does: only
// for addresses and a MAC, and where it is so configured.
func (m *maker) requestByArgs(where string, step *Step, key string, sel npwg.Selection) bool {
	var arg Arg
	switch {
	case !m.config.ArgsWithoutCapability:
		return false
	case key == "ips":
		arg = Arg{Key: "IP", Value: strings.Join(ipTexts(sel), ",")}
	case key == "mac":
		arg = Arg{Key: "MAC", Value: sel.MAC}
	default:
		return false
	}
	step.Args = append(step.Args, arg)
	m.warn(ReasonArgs, "%s, network %s: it asks for %s by %s= in CNI_ARGS, which a plugin may ignore, since no plugin of the network declares the capability: "+
		`add "capabilities": {"%s": true} to the plugin that takes it`, where, step.Name, key, arg.Key, key)
	return true
}

// capability sets a capability argument.
func (s *Step) capability(name string, value json.RawMessage) {
	if s.Capabilities == nil {
		s.Capabilities = map[string]json.RawMessage{}
	}
	s.Capabilities[name] = value
}

func ipTexts(sel npwg.Selection) (texts []string) {
	for _, ip := range sel.IPs {
		texts = append(texts, ip.String())
	}
	return texts
}

func withBursts(b npwg.Bandwidth) npwg.Bandwidth {
	if b.IngressRate > 0 && b.IngressBurst == 0 {
		b.IngressBurst = npwg.DefaultBurst
	}
	if b.EgressRate > 0 && b.EgressBurst == 0 {
		b.EgressBurst = npwg.DefaultBurst
	}
	return b
}

// argsOfV1 returns the members of args.cni by which version 1 asks for addresses
// (its sections 4.1.2.1.3.2 and 4.1.2.1.4.2).
func argsOfV1(sel npwg.Selection) map[string]json.RawMessage {
	args := map[string]json.RawMessage{}
	if len(sel.IPs) > 0 {
		args["ips"] = encode(ipTexts(sel))
	}
	if sel.MAC != "" {
		args["mac"] = quote(sel.MAC)
	}
	return args
}

// mergeArgs puts args into a plugin's args.cni, over what is there (4.1.2.1.6.2).
func mergeArgs(plugin, args map[string]json.RawMessage) error {
	all, ofCNI := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	if err := member(plugin, "args", &all, "an object"); err != nil {
		return err
	}
	if err := member(all, "cni", &ofCNI, "an object"); err != nil {
		return fmt.Errorf("args: %w", err)
	}
	if all == nil { // "args": null
		all = map[string]json.RawMessage{}
	}
	if ofCNI == nil {
		ofCNI = map[string]json.RawMessage{}
	}
	maps.Copy(ofCNI, args)
	all["cni"] = encode(ofCNI)
	plugin["args"] = encode(all)
	return nil
}
