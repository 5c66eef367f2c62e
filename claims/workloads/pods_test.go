package workloads

import (
	"context"
	"fmt"
	"strings"
	"testing"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/workload"
	"github.com/tenure-ipam/tenure/ipam/controller/networks"
	"github.com/tenure-ipam/tenure/ipam/kube"
)

// everything has every definition, and every claim, which is of network old. It counts the reads.
type everything struct {
	client.Client
	reads int
}

func (e *everything) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	e.reads++
	if c, ok := into.(*ipamclaims.IPAMClaim); ok {
		c.Spec.Network = "old"
	}
	return nil
}

// Placed implements Catalog.
func (e *everything) Placed(context.Context, *nad.NetworkAttachmentDefinition, string) (networks.Network, error) {
	return networks.Network{Name: "new", Owner: networks.Tenure}, nil
}

// TestMachineWithManyElements: however many elements a machine's pod has, few calls are made.
func TestMachineWithManyElements(t *testing.T) {
	for name, tt := range map[string]struct {
		claim func(i int) string
		want  int
	}{
		"one claim":   {func(int) string { return "vm.net1" }, 1},
		"many claims": {func(i int) string { return fmt.Sprintf("vm.net%d", i) }, workload.MaxElements},
	} {
		t.Run(name, func(t *testing.T) {
			var elements []string
			for i := range 1000 {
				elements = append(elements, fmt.Sprintf(`{"name": "lan", "interface": "net%d", "ipam-claim-reference": %q}`, i, tt.claim(i)))
			}
			pod := podMetadata()
			pod.Labels = map[string]string{kube.LauncherLabel: kube.Launcher}
			pod.Annotations = map[string]string{npwg.AnnotationNetworks: "[" + strings.Join(elements, ",") + "]"}
			live := &everything{}
			p := &PodClaims{Cache: &everything{}, Live: live, Networks: &everything{}}
			if _, _, err := p.ofMachine(t.Context(), pod); err != nil || live.reads != tt.want {
				t.Errorf("got %v and %d calls; want %d", err, live.reads, tt.want)
			}
		})
	}
}
