package api_test

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tenure-ipam/tenure/deploy"
)

var (
	networks = schema.GroupVersionResource{Group: "k8s.cni.cncf.io", Version: "v1", Resource: "network-attachment-definitions"}
	claims   = schema.GroupVersionResource{Group: "k8s.cni.cncf.io", Version: "v1alpha1", Resource: "ipamclaims"}
)

// TestUpstreamCRDs (N1, N81): others live on these two CRDs, so what is shipped
// is what upstream published, byte for byte; but for the short name that Multus' manifest
// adds, which people type.
func TestUpstreamCRDs(t *testing.T) {
	tests := []struct{ module, published, shipped string }{
		{"github.com/k8snetworkplumbingwg/ipamclaims", "artifacts/k8s.cni.cncf.io_ipamclaims.yaml", "k8s.cni.cncf.io_ipamclaims.yaml"},
		{"github.com/k8snetworkplumbingwg/network-attachment-definition-client", "artifacts/networks-crd.yaml", "networks-crd.yaml"},
	}
	files, err := fs.ReadDir(deploy.FS, "crds/upstream")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != len(tests) {
		t.Errorf("got %d files in crds/upstream; want the %d that this test compares", len(files), len(tests))
	}
	for _, tt := range tests {
		t.Run(tt.shipped, func(t *testing.T) {
			dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", tt.module).Output()
			if err != nil {
				t.Fatal(err)
			}
			want, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), tt.published))
			if err != nil {
				t.Fatal(err)
			}
			want = bytes.Replace(want, []byte("    - net-attach-def\n"), []byte("    - nad\n    - net-attach-def\n"), 1)
			got, err := fs.ReadFile(deploy.FS, "crds/upstream/"+tt.shipped)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("deploy/crds/upstream/%s differs from %s of %s; copy it again", tt.shipped, tt.published, tt.module)
			}
		})
	}
}

// TestNetworkExamples (N1, N2): the four YAML examples of the specification,
// sections 3.2.1 to 3.2.4, are accepted; the last has no spec.
func TestNetworkExamples(t *testing.T) {
	const head = "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\n"
	tests := []struct{ name, text string }{
		{"3.2.1 config", head + `metadata: {name: a-bridge-network}
spec:
  config: '{
    "cniVersion": "0.3.0",
    "name": "a-bridge-network",
    "type": "bridge",
    "bridge": "br0",
    "isGateway": true,
    "ipam": {"type": "host-local", "subnet": "192.168.5.0/24", "dataDir": "/mnt/cluster-ipam"}
  }'
`},
		{"3.2.2 config list", head + `metadata: {name: another-bridge-network}
spec:
  config: '{
    "cniVersion": "0.3.0",
    "name": "another-bridge-network",
    "plugins": [
      {"type": "bridge", "bridge": "br0", "ipam": {"type": "host-local", "subnet": "192.168.5.0/24"}},
      {"type": "port-forwarding"},
      {"type": "tuning", "sysctl": {"net.ipv4.conf.all.log_martians": "1"}}
    ]
  }'
`},
		{"3.2.3 thick plugin", head + `metadata: {name: a-bridge-network}
spec:
  config: '{"cniVersion": "0.3.0", "type": "awesome-plugin"}'
`},
		{"3.2.4 no spec", head + "metadata: {name: a-bridge-network}\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := cluster.Resource(networks).Namespace("default").Create(t.Context(), mustParse(t, tt.text), dryOptions)
			checkAccepted(t, err)
		})
	}
}

// TestClaimSchema (N81): network and interface are required; the example of
// section 8.2.1 is accepted under the group that the CRD has.
func TestClaimSchema(t *testing.T) {
	claim := func(spec string) error {
		_, err := cluster.Resource(claims).Namespace("default").Create(t.Context(), mustParse(t,
			"apiVersion: k8s.cni.cncf.io/v1alpha1\nkind: IPAMClaim\nmetadata: {name: vm-a.tenantred.pod16367aacb67}\nspec: "+spec+"\n"), dryOptions)
		return err
	}
	t.Run("example", func(t *testing.T) { checkAccepted(t, claim("{network: tenantred, interface: pod16367aacb67}")) })
	t.Run("no network", func(t *testing.T) { checkRefused(t, claim("{interface: net1}"), "spec.network: Required") })
	t.Run("no interface", func(t *testing.T) { checkRefused(t, claim("{network: tenantred}"), "spec.interface: Required") })
}
