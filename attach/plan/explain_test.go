package plan

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/version"
	"github.com/google/go-cmp/cmp"

	"github.com/tenure-ipam/tenure/attach/facts"
)

// recorder stands for the plugins that libcni would run.
type recorder struct {
	version.PluginDecoder
	stdins []json.RawMessage
}

var _ invoke.Exec = (*recorder)(nil)

func (*recorder) FindInPath(plugin string, _ []string) (string, error) { return plugin, nil }

func (r *recorder) ExecPlugin(_ context.Context, _ string, stdin []byte, _ []string) ([]byte, error) {
	r.stdins = append(r.stdins, stdin)
	return []byte(`{"cniVersion": "1.0.0"}`), nil
}

func TestInvocationsAreWhatLibcniMakes(t *testing.T) {
	p := scene{
		networks: `[{"name": "a", "ips": ["10.0.0.1/24"], "mac": "02:00:00:00:00:01", "cni-args": {"k": [1, {"x": null}]}}]`,
		defs: []facts.Definition{def("a", `{"cniVersion": "0.4.0", "cniVersions": ["1.0.0"], "plugins": [
			{"type": "macvlan", "cniVersion": "0.2.0", "name": "x", "capabilities": {"ips": true, "mac": false}, "ipam": {"type": "tenure", "pool": "p"}},
			{"type": "tuning", "capabilities": {"mac": true, "dns": true}, "sysctl": {"a": "<&>"}}]}`)},
	}.plan(t)
	step := p.Steps[1]
	confs, err := libcni.NetworkConfFromBytes(step.List)
	if err != nil {
		t.Fatal(err)
	}
	capabilities := map[string]any{}
	for name, value := range step.Capabilities {
		capabilities[name] = value
	}
	r := &recorder{}
	cni := libcni.NewCNIConfigWithCacheDir([]string{"/"}, t.TempDir(), r)
	if _, err := cni.AddNetworkList(t.Context(), confs, &libcni.RuntimeConf{ContainerID: "c", NetNS: "/ns", IfName: step.IfName, CapabilityArgs: capabilities}); err != nil {
		t.Fatal(err)
	}
	got := stdins(t, step)
	if len(got) != 2 || len(r.stdins) != 2 {
		t.Fatalf("%d runs, and libcni makes %d; want 2", len(got), len(r.stdins))
	}
	for i, stdin := range r.stdins {
		want := values(t, string(stdin))
		delete(want, "prevResult")
		if diff := cmp.Diff(want, got[i]); diff != "" {
			t.Errorf("plugin %d (-libcni +Invocations):\n%s", i+1, diff)
		}
	}
}

func TestExplain(t *testing.T) {
	s := scene{
		networks: `[{"name": "a", "ips": ["10.0.0.1/24"], "mac": "02:00:00:00:00:01", "default-route": ["10.0.0.254"], "oops": 1}]`, keys: `"kubeconfig": "/k"`,
		defs: []facts.Definition{def("a", `{"cniVersion": "1.0.0", "name": "blue", "plugins": [{"type": "macvlan", "capabilities": {"ips": true}}, {"type": "tuning", "capabilities": {"mac": true}}]}`)},
	}
	p, err := s.make(t)
	var b strings.Builder
	if err := errors.Join(err, Explain(&b, p, err, "")); err != nil {
		t.Fatal(err)
	}
	want := `Pod shop/web has 2 attachments, made in this order:

1. default network cluster on interface eth0
   CNI network    cluster
   CNI_IFNAME     eth0
   CNI_ARGS       IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web;K8S_POD_INFRA_CONTAINER_ID=CONTAINER-ID;K8S_POD_UID=u1
   default route  removed: another attachment has it
   flannel gets:
      {
        "cniVersion": "1.0.0",
        "name": "cluster",
        "type": "flannel"
      }

2. network shop/a on interface net1
   CNI network    blue
   CNI_IFNAME     net1
   CNI_ARGS       IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web;K8S_POD_INFRA_CONTAINER_ID=CONTAINER-ID;K8S_POD_UID=u1
   capability     ips = ["10.0.0.1/24"]
   capability     mac = "02:00:00:00:00:01"
   must have      addresses 10.0.0.1
   must have      MAC address 02:00:00:00:00:01
   default route  through 10.0.0.254
   macvlan gets:
      {
        "capabilities": {
          "ips": true
        },
        "cniVersion": "1.0.0",
        "name": "blue",
        "runtimeConfig": {
          "ips": [
            "10.0.0.1/24"
          ]
        },
        "type": "macvlan"
      }
   tuning gets, and as prevResult what macvlan answered:
      {
        "capabilities": {
          "mac": true
        },
        "cniVersion": "1.0.0",
        "name": "blue",
        "runtimeConfig": {
          "mac": "02:00:00:00:00:01"
        },
        "type": "tuning"
      }

Warnings, which the pod gets as events:
  - UnknownNetworkKey: annotation k8s.v1.cni.cncf.io/networks: element 1 (shop/a): key oops has no effect: the version of the specification in use does not know it

Notes:
  - configuration key without effect: kubeconfig: no credentials lie on the host: the agent is the one to talk to the API server
  - definition shop/a: its configuration has the name blue; the same name for both is recommended (NPWG 3.4.3)
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestExplainWhatWouldFail(t *testing.T) {
	p, faults := scene{networks: "none,none"}.make(t)
	var b strings.Builder
	if err := Explain(&b, p, faults, ""); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Pod shop/web would not be attached to any network:\n  - pod shop/web: element 1: network shop/none: does not exist; create the definition, or correct the annotation\n  - pod shop/web: element 2:",
		"What could be planned, and is not carried out:\n\n1. default network cluster on interface eth0\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%s\nwant in it: %s", b.String(), want)
		}
	}
	b.Reset()
	if err := Explain(&b, scene{}.plan(t), nil, ""); err != nil || !strings.HasPrefix(b.String(), "Pod shop/web has 1 attachment:\n") {
		t.Errorf("%s, %v; want one attachment", b.String(), err)
	}
}

func TestExplainNamesTheClaim(t *testing.T) {
	p := scene{
		networks: `[{"name": "a", "ipam-claim-reference": "vm.a"}]`,
		defs:     []facts.Definition{def("a", `{"cniVersion": "1.0.0", "name": "a", "type": "macvlan", "ipam": {"type": "tenure", "pool": "p"}}`)},
	}.plan(t)
	var b strings.Builder
	if err := Explain(&b, p, nil, ""); err != nil || strings.Count(b.String(), "   claim          vm.a: ") != 1 {
		t.Errorf("%s, %v; want the claim named once", b.String(), err)
	}
}
