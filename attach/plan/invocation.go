package plan

import (
	"encoding/json"
	"fmt"
	"maps"

	"github.com/tenure-ipam/tenure/attach/facts"
)

// An Invocation is one run of a delegate in an ADD.
type Invocation struct {
	Type string
	// Config is what it gets on stdin, but for prevResult, which the second and
	// later plugins of a list get: the result of the plugin before.
	Config json.RawMessage
}

// Invocations returns the runs of a step's plugins in an ADD, in order, as libcni
// makes them of the step's list and capability arguments.
func (s Step) Invocations() ([]Invocation, error) {
	l, err := parseList(s.List)
	if err != nil {
		return nil, fmt.Errorf("step %s: %w", s.Name, err)
	}
	var all []Invocation
	for _, plugin := range l.plugins {
		config := maps.Clone(plugin.members)
		config["name"] = quote(l.name)
		config["cniVersion"] = json.RawMessage(`""`)
		if v, ok := l.members["cniVersion"]; ok {
			config["cniVersion"] = v
		}
		runtime := map[string]json.RawMessage{}
		for capability, on := range plugin.conf.Capabilities {
			if value, ok := s.Capabilities[capability]; ok && on {
				runtime[capability] = value
			}
		}
		if len(runtime) > 0 {
			config["runtimeConfig"] = encode(runtime)
		}
		all = append(all, Invocation{Type: plugin.conf.Type, Config: encode(config)})
	}
	return all, nil
}

// CallOf returns what a Kubernetes runtime says of an ADD of pod, for a plan that is
// made to be looked at.
func CallOf(pod facts.PodRef) Call {
	const container = "CONTAINER-ID"
	uid := pod.UID
	if uid == "" {
		uid = "POD-UID"
	}
	return Call{
		ContainerID: container, IfName: "eth0",
		Args: []Arg{
			{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", pod.Namespace}, {"K8S_POD_NAME", pod.Name},
			{"K8S_POD_INFRA_CONTAINER_ID", container}, {"K8S_POD_UID", uid},
		},
	}
}
