package fleet

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/test/controlplane"
	"github.com/tenure-ipam/tenure/test/manifests"
)

// Accounts are the credentials of Tenure's programs, with the rights that they are
// shipped with. They do not expire.
type Accounts struct{ Agent, Controller *rest.Config }

// Install puts the roles of deploy into a cluster, and more of its files or directories, such as
// "policies"; and what a cluster of this kind lacks for pods to be created: the service account
// "default".
func Install(ctx context.Context, cp *controlplane.ControlPlane, kc client.Client, more ...string) (a Accounts, err error) {
	for _, path := range append([]string{"rbac"}, more...) {
		if err := install(ctx, kc, path); err != nil {
			return a, err
		}
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: "default"}}
	if err := kc.Create(ctx, account); err != nil {
		return a, err
	}
	user := func(name string) (*rest.Config, error) {
		return cp.AddUser("system:serviceaccount:"+kube.DefaultRegistrationNamespace+":"+name, "system:serviceaccounts")
	}
	if a.Agent, err = user("tenured"); err != nil {
		return a, err
	}
	a.Controller, err = user("tenure-controller")
	return a, err
}

// InstallRoles creates the roles that Tenure is shipped with.
func InstallRoles(ctx context.Context, kc client.Client) error { return install(ctx, kc, "rbac") }

// InstallPolicies creates the policies that Tenure is shipped with. The API server
// enforces them from some moments later on.
func InstallPolicies(ctx context.Context, kc client.Client) error {
	return install(ctx, kc, "policies")
}

// install creates the objects of a file of deploy, or of a directory.
func install(ctx context.Context, kc client.Client, path string) error {
	objects, err := manifests.Shipped(path)
	if err != nil {
		return err
	}
	for _, o := range objects {
		if err := kc.Create(ctx, o); err != nil {
			return fmt.Errorf("%s of %s: %w", manifests.Name(o), path, err)
		}
	}
	return nil
}
