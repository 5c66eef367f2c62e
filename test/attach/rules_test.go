package attach_test

import "testing"

// TestWhoMayUseADefinition (N77) has a pod of namespace ns, with the label team=blue, name
// a definition of another namespace: as a network that it selects, and as its default
// network. Both go by the same rules, but for the definitions of defaultNamespace, any
// of which may be a pod's default network.
func TestWhoMayUseADefinition(t *testing.T) {
	const (
		isolated   = "namespaces are isolated"
		notNamed   = "does not let pods of namespace ns use it"
		names      = "tenure.dev/namespaces"
		selector   = "tenure.dev/namespace-selector"
		unreadable = selector + " cannot be read"
	)
	type keys = map[string]any
	for name, tt := range map[string]struct {
		definition          string // namespace/x; infra/x if empty
		keys                keys
		annotations         []string
		selected, byDefault string // why it is refused; empty: it is not
	}{
		"its own":                     {definition: "ns"},
		"its own, whatever it says":   {definition: "ns", annotations: []string{names, "blog"}},
		"another's":                   {selected: isolated, byDefault: isolated},
		"of defaultNamespace":         {definition: "kube-system", selected: isolated},
		"of another defaultNamespace": {keys: keys{"defaultNamespace": "infra"}, selected: isolated},
		"of defaultNamespace, restricted": {
			definition: "kube-system", annotations: []string{names, "blog"}, selected: notNamed, byDefault: notNamed,
		},
		"isolation is off":          {keys: keys{"isolation": "None"}},
		"isolation is off, theirs":  {keys: keys{"isolation": "None"}, annotations: []string{names, "blog"}, selected: notNamed, byDefault: notNamed},
		"global":                    {keys: keys{"globalNamespaces": "default, infra"}},
		"global, others":            {keys: keys{"globalNamespaces": []string{"default"}}, selected: "its own namespace, default", byDefault: "its own namespace, kube-system, default"},
		"global, nobody's":          {keys: keys{"globalNamespaces": "infra"}, annotations: []string{names, ""}, selected: notNamed, byDefault: notNamed},
		"named":                     {annotations: []string{names, "blog, ns"}},
		"all are named":             {annotations: []string{names, "*"}},
		"not named":                 {annotations: []string{names, "blog"}, selected: notNamed, byDefault: notNamed},
		"label":                     {annotations: []string{selector, "team in (blue, red), !external"}},
		"another label":             {annotations: []string{selector, "team=red"}, selected: notNamed, byDefault: notNamed},
		"another label, but named":  {annotations: []string{selector, "team=red", names, "ns"}},
		"a selector that is broken": {annotations: []string{selector, "team in blue"}, selected: unreadable, byDefault: unreadable},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.agent.labels = map[string]string{"team": "blue"}
			if tt.definition == "" {
				tt.definition = "infra"
			}
			ref := tt.definition + "/x"
			n.define(tt.definition, "x", n.recorder("x", nil), tt.annotations...)
			n.selects("selecting", ref)
			n.annotate("replacing", "v1.multus-cni.io/default-network", ref)
			n.allowed(sandboxOf{pod: "selecting", config: tt.keys}, ref, tt.selected, "ADD default eth0", "ADD x net1")
			n.allowed(sandboxOf{pod: "replacing", config: tt.keys}, ref, tt.byDefault, "ADD x eth0")
		})
	}
}

// allowed fails the test unless an ADD calls these delegates or, if there is a reason to
// refuse the definition, none, and leaves nothing behind.
func (n *node) allowed(s sandboxOf, ref, refused string, calls ...string) {
	n.t.Helper()
	if refused == "" {
		n.ok("ADD", s)
		n.called(calls...)
		n.ok("DEL", s)
		n.records()
		return
	}
	n.fails("ADD", s, "network "+ref, refused)
	n.called()
	if left := n.journals(); len(left) > 0 {
		n.t.Errorf("journals %v; want none", left)
	}
}

// TestDefaultNetworkOfAPodIsWrong: what is wrong with the annotation that names a pod's
// default network fails the pod, since the specification's rule is for the other one.
func TestDefaultNetworkOfAPodIsWrong(t *testing.T) {
	n := newNode(t)
	n.define("ns", "x", n.recorder("x", nil))
	for annotation, why := range map[string]string{
		"ns/x,ns/x":     "it names 2 networks",
		"ns/none":       "the agent says nothing of it",
		"none":          "network kube-system/none",
		"ns/X":          "invalid",
		"ns/x@net9":     "it asks for interface net9",
		`[{"name":"x"}`: "JSON",
		`[{"name":"x","namespace":"ns","ips":["10.0.0.5"]}]`: "capability ips",
	} {
		n.annotate("p", "v1.multus-cni.io/default-network", annotation)
		n.fails("ADD", pod("p"), "pod ns/p", "annotation v1.multus-cni.io/default-network", why)
		n.called()
	}
	// As KubeVirt asks for a virtual machine's hardware address.
	n.define("ns", "vm", n.able("vm", map[string]any{"ips": []string{"10.0.0.5/16"}, "mac": "02:00:00:00:00:01"}, "ips", "mac"))
	n.annotate("p", "v1.multus-cni.io/default-network", `[{"name":"vm","namespace":"ns","mac":"02:00:00:00:00:01","ips":["10.0.0.5/16"]}]`)
	n.ok("ADD", pod("p"))
	c := n.called("ADD vm eth0", "ADD vm eth0")[1]
	if mac, ips := c.at("runtimeConfig", "mac"), c.at("runtimeConfig", "ips"); mac != "02:00:00:00:00:01" || len(ips.([]any)) != 1 {
		t.Errorf("runtimeConfig has mac %v, ips %v; want what the annotation asks for", mac, ips)
	}
}
