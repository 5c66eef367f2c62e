package translation

import (
	"slices"
	"strings"
	"testing"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// objects reads manifests, one a document.
func objects(t *testing.T, text string) (all []unstructured.Unstructured) {
	t.Helper()
	for doc := range strings.SplitSeq(text, "\n---\n") {
		o := unstructured.Unstructured{Object: map[string]any{}}
		if err := yaml.Unmarshal([]byte(doc), &o.Object); err != nil {
			t.Fatal(err)
		}
		all = append(all, o)
	}
	return all
}

// definitions makes definitions of a namespace, by name, with these ipam sections.
func definitions(ipam ...string) (all []nad.NetworkAttachmentDefinition) {
	for i := 0; i < len(ipam); i += 2 {
		all = append(all, nad.NetworkAttachmentDefinition{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: ipam[i]},
			Spec:       nad.NetworkAttachmentDefinitionSpec{Config: `{"cniVersion": "1.0.0", "plugins": [ {"type": "macvlan", "ipam" : ` + ipam[i+1] + ` }]}`},
		})
	}
	return all
}

// same compares a value, as YAML, with a text.
func same(t *testing.T, what string, got any, want string) {
	t.Helper()
	text, err := yaml.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	var is, ought any
	if err := yaml.Unmarshal(text, &is); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(want), &ought); err != nil {
		t.Fatal(err)
	}
	a, _ := yaml.Marshal(is)
	b, _ := yaml.Marshal(ought)
	if string(a) != string(b) {
		t.Errorf("%s is\n%s\nwant\n%s", what, a, b)
	}
}

const rails = `
apiVersion: nv-ipam.nvidia.com/v1alpha1
kind: CIDRPool
metadata: {name: rail.0, namespace: network}
spec:
  cidr: 192.168.0.0/16
  perNodeNetworkPrefix: 24
  gatewayIndex: 1
  exclusions:
  - {startIP: 192.168.1.10, endIP: 192.168.1.19}
  - {startIP: 10.0.0.1, endIP: 10.0.0.9}
  staticAllocations:
  - {nodeName: node-b, prefix: 192.168.7.0/24, gateway: 192.168.7.1}
  - {prefix: 192.168.9.0/24}
  routes:
  - {dst: 192.168.0.0/16}
  nodeSelector: {nodeSelectorTerms: [{matchExpressions: [{key: gpu, operator: Exists}]}]}
status:
  allocations:
  - {nodeName: node-a, prefix: 192.168.1.0/24, gateway: 192.168.1.1}
  - {nodeName: node-b, prefix: 192.168.7.0/24, gateway: 192.168.7.1}
---
apiVersion: nv-ipam.nvidia.com/v1alpha1
kind: IPPool
metadata: {name: flat, namespace: network}
spec:
  subnet: 10.20.0.0/24
  perNodeBlockSize: 16
  gateway: 10.20.0.1
  defaultGateway: true
  exclusions: [{startIP: 10.20.0.200, endIP: 10.20.3.7}]
  nodeSelector: {nodeSelectorTerms: [{matchExpressions: [{key: rack, operator: In, values: [a, b]}]}]}
---
apiVersion: nv-ipam.nvidia.com/v1alpha1
kind: CIDRPool
metadata: {name: flat, namespace: network}
spec: {cidr: "fd00:1::/48", perNodeNetworkPrefix: 64}
`

func TestOfNVIPAM(t *testing.T) {
	r := OfNVIPAM(Read{Objects: objects(t, rails), Definitions: definitions(
		"rail", `{"type": "nv-ipam", "poolName": "rail.0", "poolType": "cidrpool"}`,
		"flat", `{"type":"nv-ipam"}`, // its pool has its name
		"other", `{"type": "whereabouts", "range": "10.9.0.0/24"}`,
	)})
	same(t, "the report", r, `
from: nv-ipam
definitions:
- name: shop/flat
  of: [IPPool network/flat]
  pools: [flat]
  config: '{"cniVersion": "1.0.0", "plugins": [ {"type": "macvlan", "ipam" : {"pool":"flat","type":"tenure"} }]}'
- name: shop/rail
  of: [CIDRPool network/rail.0]
  pools: [rail-0]
  config: '{"cniVersion": "1.0.0", "plugins": [ {"type": "macvlan", "ipam" : {"pool":"rail-0","type":"tenure"} }]}'
pools:
- name: flat
  of: [IPPool network/flat]
  spec:
    ranges:
    - cidr: 10.20.0.0/24
      gateway: 10.20.0.1
      exclude: [10.20.0.200-10.20.0.255]
      nodeSelector: {matchExpressions: [{key: rack, operator: In, values: [a, b]}]}
    routes: [{dst: 0.0.0.0/0}]
- name: rail-0
  of: [CIDRPool network/rail.0]
  perNode: true
  notes: ["its nodeSelector is left out: each node gets a subnet that has pods of the network"]
  spec:
    perNode:
      prefixLength: 24
      gateway: First
      routes: None
      pinned: [{node: node-a, cidr: 192.168.1.0/24}, {node: node-b, cidr: 192.168.7.0/24}]
    ranges: [{cidr: 192.168.0.0/16, exclude: [192.168.1.10-192.168.1.19, 192.168.9.0/24]}]
    routes: [{dst: 192.168.0.0/16}]
unnamed: [CIDRPool network/flat]
`)
}

// TestOfNVIPAMInTheWay: what has no word in Tenure keeps the definition as it is, and with it those
// that share a pool with it.
func TestOfNVIPAMInTheWay(t *testing.T) {
	const cidr = "apiVersion: nv-ipam.nvidia.com/v1alpha1\nkind: CIDRPool\nmetadata: {name: p, namespace: network}\n"
	const ip = "apiVersion: nv-ipam.nvidia.com/v1alpha1\nkind: IPPool\nmetadata: {name: p, namespace: network}\n"
	for _, tt := range []struct{ object, why string }{
		{cidr + `spec: {cidr: 10.0.0.0/16, perNodeNetworkPrefix: 24, gatewayIndex: 2}`, "its gatewayIndex is 2"},
		{cidr + `spec: {cidr: 10.0.0.0/16, perNodeNetworkPrefix: 24, staticAllocations: [{nodeName: a, prefix: 10.0.1.0/24, gateway: 10.0.1.254}]}`, "the gateway of node a is 10.0.1.254"},
		{cidr + `spec: {cidr: 10.0.0.0/16, perNodeNetworkPrefix: 24, perNodeExclusions: [{startIndex: 1, endIndex: 3}]}`, "it has perNodeExclusions"},
		{cidr + `spec: {cidr: 10.0.0.0/24, perNodeNetworkPrefix: 31}`, "Tenure would not open the pool: spec.perNode.prefixLength"},
		{cidr + "spec: {cidr: 10.0.0.0/16, perNodeNetworkPrefix: 24, staticAllocations: [{nodeName: a, prefix: 10.0.1.0/24}]}\nstatus: {allocations: [{nodeName: a, prefix: 10.0.2.0/24}]}", "node a has 10.0.2.0/24, and 10.0.1.0/24 by staticAllocations"},
		{ip + `spec: {subnet: 10.0.0.0/24, nodeSelector: {nodeSelectorTerms: [{matchExpressions: [{key: left, operator: Exists}]}, {matchExpressions: [{key: right, operator: Exists}]}]}}`, "its nodeSelector has several terms"},
		{ip + `spec: {subnet: 10.0.0.0/24, nodeSelector: {nodeSelectorTerms: [{matchExpressions: [{key: x, operator: Gt, values: ["3"]}]}]}}`, "compares label x by Gt"},
		{ip + `spec: {subnet: nonsense}`, "Tenure would not open the pool: spec.ranges[0].cidr"},
		{ip + `spec: {subnet: 10.0.0.0/24}`, "Tenure has a pool p"},
		{ip + `spec: 7`, "it cannot be read"},
	} {
		kind := "ippool"
		if strings.HasPrefix(tt.object, cidr) {
			kind = "cidrpool"
		}
		var there []string
		if strings.Contains(tt.why, "has a pool") {
			there = []string{"p"}
		}
		r := OfNVIPAM(Read{Objects: objects(t, tt.object+"\n---\n"+strings.ReplaceAll(strings.ReplaceAll(rails, "rail.0", "rail"), "name: flat", "name: free")), There: there, Definitions: definitions(
			"at", `{"type":"nv-ipam","poolName":"p","poolType":"`+kind+`"}`,
			"beside", `{"type":"nv-ipam","poolName":"p,missing","poolType":"`+kind+`"}`,
			"apart", `{"type":"nv-ipam","poolName":"rail","poolType":"CIDRPool"}`,
		)})
		for _, d := range r.Definitions {
			switch stays := len(d.InTheWay) > 0 && d.Config == ""; {
			case d.Name == "shop/apart" && (stays || d.Config == ""):
				t.Errorf("%s: what has its own pool stays: %q", tt.why, d.InTheWay)
			case d.Name != "shop/apart" && !stays:
				t.Errorf("%s: %s is to be %s", tt.why, d.Name, d.Config)
			case d.Name == "shop/at" && !strings.Contains(strings.Join(d.InTheWay, "; "), tt.why):
				t.Errorf("in the way of it is %q; want %q", d.InTheWay, tt.why)
			}
		}
	}
}

const spiders = `
apiVersion: spiderpool.spidernet.io/v2beta1
kind: SpiderIPPool
metadata: {name: rack-a}
spec:
  subnet: 10.6.0.0/16
  ips: [10.6.168.60-10.6.168.69, 10.6.168.80]
  excludeIPs: [10.6.168.66-10.6.168.67]
  gateway: 10.6.0.1
  routes: [{dst: 10.0.0.0/8, gw: 10.6.0.1}]
  nodeAffinity: {matchLabels: {rack: a}}
  namespaceName: [shop]
---
apiVersion: spiderpool.spidernet.io/v2beta1
kind: SpiderIPPool
metadata: {name: rack-b}
spec:
  subnet: 10.7.0.0/16
  ips: [10.7.168.60-10.7.168.69]
  gateway: 10.7.0.1
  routes: [{dst: 10.0.0.0/8, gw: 10.7.0.1}]
  nodeName: [worker-1, worker-2]
  namespaceName: [shop]
---
apiVersion: spiderpool.spidernet.io/v2beta1
kind: SpiderIPPool
metadata: {name: by-default}
spec: {subnet: 10.8.0.0/24, ips: [10.8.0.5-10.8.0.9], default: true, namespaceAffinity: {matchLabels: {team: x}}}
---
apiVersion: spiderpool.spidernet.io/v2beta1
kind: SpiderIPPool
metadata: {name: of-one}
spec: {subnet: 10.9.0.0/24, ips: [10.9.0.5-10.9.0.9], multusName: [shop/one]}
---
apiVersion: spiderpool.spidernet.io/v2beta1
kind: SpiderIPPool
metadata: {name: disabled}
spec: {subnet: 10.11.0.0/24, ips: [10.11.0.5], default: true, disable: true}
---
apiVersion: spiderpool.spidernet.io/v2beta1
kind: SpiderReservedIP
metadata: {name: printer}
spec: {ips: [10.7.168.61, 192.0.2.1]}
`

func TestOfSpiderpool(t *testing.T) {
	r := OfSpiderpool(Read{Objects: objects(t, spiders), Definitions: definitions(
		"fabric", `{"type": "spiderpool", "default_ipv4_ippool": ["rack-a", "rack-b"]}`,
		"one", `{"type": "spiderpool", "clean_gateway": true}`,
		"plain", `{"type": "spiderpool"}`,
	)})
	same(t, "the report", r, `
from: spiderpool
definitions:
- name: shop/fabric
  of: [SpiderIPPool rack-a, SpiderIPPool rack-b]
  pools: [shop-fabric]
  config: '{"cniVersion": "1.0.0", "plugins": [ {"type": "macvlan", "ipam" : {"pool":"shop-fabric","routes":[{"dst":"0.0.0.0/0"}],"type":"tenure"} }]}'
- name: shop/one
  of: [SpiderIPPool of-one]
  pools: [of-one]
  config: '{"cniVersion": "1.0.0", "plugins": [ {"type": "macvlan", "ipam" : {"pool":"of-one","type":"tenure"} }]}'
- name: shop/plain
  of: [SpiderIPPool by-default]
  pools: [by-default]
  config: '{"cniVersion": "1.0.0", "plugins": [ {"type": "macvlan", "ipam" : {"pool":"by-default","type":"tenure"} }]}'
pools:
- name: by-default
  of: [SpiderIPPool by-default]
  spec:
    ranges: [{cidr: 10.8.0.0/24, start: 10.8.0.5, end: 10.8.0.9}]
    namespaceSelector: {matchLabels: {team: x}}
- name: of-one
  of: [SpiderIPPool of-one]
  spec:
    ranges: [{cidr: 10.9.0.0/24, start: 10.9.0.5, end: 10.9.0.9}]
- name: shop-fabric
  of: [SpiderIPPool rack-a, SpiderIPPool rack-b]
  notes: ["rack-b selects nodes by name: the range does by their label kubernetes.io/hostname"]
  spec:
    ranges:
    - {cidr: 10.6.0.0/16, start: 10.6.168.60, end: 10.6.168.69, exclude: [10.6.168.66-10.6.168.67], gateway: 10.6.0.1, nodeSelector: {matchLabels: {rack: a}}}
    - {cidr: 10.6.0.0/16, start: 10.6.168.80, end: 10.6.168.80, gateway: 10.6.0.1, nodeSelector: {matchLabels: {rack: a}}}
    - {cidr: 10.7.0.0/16, start: 10.7.168.60, end: 10.7.168.69, exclude: [10.7.168.61-10.7.168.61], gateway: 10.7.0.1,
       nodeSelector: {matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [worker-1, worker-2]}]}}
    namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: In, values: [shop]}]}
    routes: [{dst: 10.0.0.0/8}]
unnamed: [SpiderIPPool disabled]
`)
}

func TestOfSpiderpoolInTheWay(t *testing.T) {
	read := Read{Objects: objects(t, spiders+`
---
apiVersion: spiderpool.spidernet.io/v2beta1
kind: SpiderIPPool
metadata: {name: of-pods}
spec: {subnet: 10.12.0.0/24, ips: [10.12.0.5], podAffinity: {matchLabels: {app: x}}}
`)}
	for _, tt := range []struct {
		definitions []nad.NetworkAttachmentDefinition
		why         string
	}{
		{definitions("a", `{"type":"spiderpool","default_ipv4_ippool":["of-pods"]}`), "of-pods has podAffinity"},
		{definitions("a", `{"type":"spiderpool","default_ipv4_ippool":["nowhere"]}`), "there is no SpiderIPPool nowhere"},
		{definitions("a", `{"type":"spiderpool","default_ipv4_ippool":["disabled"]}`), "no SpiderIPPool is named by it"},
		{definitions("a", `{"type":"spiderpool","default_ipv4_ippool":["rack-a","by-default"]}`), "rack-a and by-default are for other namespaces"},
		{definitions("a", `{"type":"spiderpool","default_ipv4_ippool":["rack-a"]}`, "b", `{"type":"spiderpool","default_ipv4_ippool":["rack-a","rack-b"]}`), "definitions that take addresses of SpiderIPPool rack-a take those of other pools too"},
		{definitions("a", `{"type":"spiderpool","default_ipv4_ippool":7}`), "its ipam section cannot be read"},
	} {
		read.Definitions = tt.definitions
		for _, d := range OfSpiderpool(read).Definitions {
			if !slices.ContainsFunc(d.InTheWay, func(w string) bool { return strings.Contains(w, tt.why) }) || d.Config != "" {
				t.Errorf("%s: in the way is %q, and the configuration %q; want %q", d.Name, d.InTheWay, d.Config, tt.why)
			}
		}
	}
	owned := definitions("a", `{"type":"spiderpool","default_ipv4_ippool":["rack-a"]}`)
	owned[0].OwnerReferences = []metav1.OwnerReference{{Kind: "SpiderMultusConfig", Name: "a"}}
	read.Definitions = owned
	if got := OfSpiderpool(read).Definitions[0]; len(got.InTheWay) > 0 || len(got.Notes) != 1 || !strings.Contains(got.Notes[0], "--cascade=orphan") {
		t.Errorf("of a definition that SpiderMultusConfig makes it says %q, %q", got.InTheWay, got.Notes)
	}
}

// TestSection: sections that differ cannot be rewritten by one text, and what is no JSON is none.
func TestSection(t *testing.T) {
	if _, _, found, err := section(`{"ipam":{"type":"nv-ipam"},"plugins":[{"ipam":{"type":"nv-ipam","poolName":"x"}}]}`, NVIPAM); !found || err == nil {
		t.Errorf("two sections: found %v, %v", found, err)
	}
	if _, _, found, err := section(`{"ipam":`, NVIPAM); found || err != nil {
		t.Errorf("no JSON: found %v, %v", found, err)
	}
}
