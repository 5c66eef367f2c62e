package agent

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// TestInferredClaims: a pod of a StatefulSet whose annotation asks for claims needs name
// none; no other pod gets one by it.
func TestInferredClaims(t *testing.T) {
	const config = `{"cniVersion":"1.0.0","name":"lan","type":"macvlan","ipam":{"type":"tenure","pool":"lan"}}`
	const lan = `[{"name":"lan"}]`
	ref := func(name string) protocol.PodRef { return protocol.PodRef{Namespace: "ns", Name: name, UID: "u1"} }
	known := store.Attachment{
		Key: store.Key{Network: "lan", ContainerID: "c1", IfName: "net1"}, Generation: 2, Pod: ref("web-3"),
		Claim: &protocol.ClaimRef{Namespace: "ns", Name: "web-3.lan", UID: "c"},
	}
	earlier := store.Attachment{Key: store.Key{Network: "lan", ContainerID: "c9", IfName: "net1"}, Generation: 1, Pod: ref("web-3")}
	byName := map[string]string{"tenure.dev/claims-by": "pod-name"}
	for name, tt := range map[string]struct {
		pod    Pod
		listed bool              // the interface is of a PodNetwork
		ifName string            // net1, if it is empty
		has    bool              // the pod has an attachment with a claim, and one of before without
		labels map[string]string // of its namespace
		claim  string
		said   string // of the pod
		err    string
	}{
		"inferred":                             {pod: Pod{PodRef: ref("web-3"), Networks: lan, Claims: "lan", Set: "web"}, claim: "web-3.lan"},
		"no annotation":                        {pod: Pod{PodRef: ref("web-3"), Networks: lan, Set: "web"}},
		"a claim that it names":                {pod: Pod{PodRef: ref("web-3"), Networks: `[{"name":"lan","ipam-claim-reference":"mine"}]`, Claims: "lan", Set: "web"}, claim: "mine"},
		"addresses that it names":              {pod: Pod{PodRef: ref("web-3"), Networks: `[{"name":"lan","ips":["10.0.0.1"]}]`, Claims: "lan", Set: "web"}},
		"another element":                      {pod: Pod{PodRef: ref("web-3"), Networks: "lan, dmz", Claims: "lan", Set: "web"}, ifName: "net2"},
		"the default network":                  {pod: Pod{PodRef: ref("web-3"), Networks: lan, Claims: "lan", Set: "web"}, ifName: "eth0"},
		"a bare pod":                           {pod: Pod{PodRef: ref("web-3"), Networks: lan, Claims: "lan"}, said: "has no effect"},
		"another pod of the set":               {pod: Pod{PodRef: ref("web-x"), Networks: lan, Claims: "lan", Set: "web"}, said: "has no effect"},
		"a pod of a set that is gone":          {pod: Pod{PodRef: ref("web-3"), Networks: lan, Claims: "lan"}, has: true, claim: "web-3.lan"},
		"by its name":                          {pod: Pod{PodRef: ref("kafka-3"), Networks: "lan, dmz", Claims: "dmz, lan@net1", ClaimsBy: "pod-name"}, claim: "kafka-3.lan.net1"},
		"by its name, as its namespace says":   {pod: Pod{PodRef: ref("kafka-3"), Networks: lan, Claims: "lan"}, labels: byName, claim: "kafka-3.lan"},
		"by another word than its namespace's": {pod: Pod{PodRef: ref("kafka-3"), Networks: lan, Claims: "lan", ClaimsBy: "none"}, labels: byName, said: "has no effect"},
		"a PodNetwork that is to have a claim": {pod: Pod{PodRef: ref("web-3"), Claims: "lan", Set: "web"}, listed: true, err: "there are claims of network attachment definitions alone"},
		"a PodNetwork, by the pod's name":      {pod: Pod{PodRef: ref("web-3"), Claims: "lan", ClaimsBy: "pod-name"}, listed: true, err: "does not select ns/lan"},
		"a PodNetwork beside it":               {pod: Pod{PodRef: ref("web-3"), Networks: lan, Claims: "lan", Set: "web"}, listed: true, ifName: "blue"},
		"the default network, unselected":      {pod: Pod{PodRef: ref("web-3"), Claims: "lan", Set: "web"}, listed: true, ifName: "eth0"},
		"by a name that passes":                {pod: Pod{PodRef: ref("web-x2k4p"), Networks: lan, Claims: "lan", ClaimsBy: "pod-name", Nameless: "it passes"}, err: "no claims by its name: it passes"},
		"of a StatefulSet, by its ordinal":     {pod: Pod{PodRef: ref("web-3"), Networks: lan, Claims: "lan", Set: "web", ClaimsBy: "pod-name"}, claim: "web-3.lan"},
		"a malformed annotation":               {pod: Pod{PodRef: ref("web-3"), Networks: lan, Claims: "lan,,", Set: "web"}, err: "annotation tenure.dev/claims: element 2"},
		"an element that is selected twice":    {pod: Pod{PodRef: ref("web-3"), Networks: "lan,lan", Claims: "lan", Set: "web"}, err: "it selects ns/lan 2 times"},
		"an invalid selection":                 {pod: Pod{PodRef: ref("web-3"), Networks: "lan,_", Claims: "lan", Set: "web"}, err: "is invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			heard := &heardEvents{}
			a := assemble(&base{st: newStore(t), cl: Cluster{Pods: &watchedPod{pod: tt.pod}, Events: heard, Access: labelled(tt.labels)}, log: slog.New(slog.DiscardHandler)})
			if tt.has {
				if err := a.st.Update(t.Context(), func(tx *store.Tx) error { return errors.Join(tx.PutAttachment(known), tx.PutAttachment(earlier)) }); err != nil {
					t.Fatal(err)
				}
			}
			conf, err := poolspec.ParseConfig([]byte(config), "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_UID=u1;K8S_POD_NAME="+tt.pod.Name)
			if err != nil {
				t.Fatal(err)
			}
			conf.Pod.Unselected = tt.listed
			ifName := "net1"
			if tt.ifName != "" {
				ifName = tt.ifName
			}
			add := &addCall{req: agentapi.Request{IfName: ifName}, conf: conf, key: store.Key{Network: "lan", ContainerID: "c2", IfName: ifName}}
			err = a.selectPod(t.Context(), add, false)
			if tt.err != "" && (!is[*selectionError](err) || !strings.Contains(err.Error(), tt.err)) || tt.err == "" && err != nil {
				t.Errorf("got %v; want an error with %q", err, tt.err)
			}
			if add.sel.Claim != tt.claim {
				t.Errorf("claim %q; want %q", add.sel.Claim, tt.claim)
			}
			if said := strings.Join(heard.all, "; "); !strings.Contains(said, tt.said) || tt.said == "" && said != "" {
				t.Errorf("said %q; want %q", said, tt.said)
			}
		})
	}
}

// labelled is namespaces that have these labels.
type labelled map[string]string

func (l labelled) Labels(context.Context, string) (map[string]string, error) { return l, nil }
func (l labelled) MayUse(context.Context, string, string) (bool, error)      { return false, nil }
