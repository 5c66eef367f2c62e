package install

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/screen"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
)

// advertiseBinding is what gives the controller its right over what Nodes publish.
const advertiseBinding = "tenure-controller-advertise"

// freeNodes takes away what Nodes publish of pools: the controller, which would do so, has ended.
// One on a node that does not answer may go on running, so its right goes first.
func (u *uninstall) freeNodes(ctx context.Context) error {
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: advertiseBinding}}
	if err := u.Client.Delete(ctx, binding); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete ClusterRoleBinding %s, by which a controller that still runs could write Nodes: %w", advertiseBinding, err)
	}
	nodes, err := session.ListAll(ctx, u.Client, &corev1.NodeList{}, func(l *corev1.NodeList) []corev1.Node { return l.Items })
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	freed := 0
	for i := range nodes {
		n := &nodes[i]
		published := map[string]any{}
		for _, all := range []corev1.ResourceList{n.Status.Capacity, n.Status.Allocatable} {
			for name := range all {
				if strings.HasPrefix(string(name), npwg.AddressResources) {
					published[string(name)] = nil // takes it away
				}
			}
		}
		if len(published) == 0 {
			continue
		}
		body, err := json.Marshal(map[string]any{"status": map[string]any{"capacity": published, "allocatable": published}})
		if err != nil {
			return fmt.Errorf("encode what node %s published: %w", n.Name, err)
		}
		if err := u.Client.Status().Patch(ctx, n, client.RawPatch(types.MergePatchType, body)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("take the resources %s… from node %s: %w", npwg.AddressResources, n.Name, err)
		}
		freed++
	}
	if freed > 0 {
		u.Screen().Line("took the resources %s… from %s: they had published what pools have", npwg.AddressResources, screen.Number(freed, "node", "nodes"))
	}
	return nil
}
