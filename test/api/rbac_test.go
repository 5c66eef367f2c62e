package api_test

import (
	"context"
	"strings"
	"testing"

	authorization "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
)

const (
	agent      = "tenured"
	controller = "tenure-controller"
	allVerbs   = "get list watch create update patch delete deletecollection"
)

// TestRoles shows, for each resource, the verbs that the roles give: those and
// no others.
func TestRoles(t *testing.T) {
	tests := []struct{ resource, agent, controller string }{
		{"pods", "get list watch", "get list watch patch"},
		{"pods/status", "patch", "patch"},
		{"pods/ephemeralcontainers", "", ""},
		{"pods/binding", "", ""},
		{"namespaces", "get list watch", "get list watch"},
		{"subjectaccessreviews.authorization.k8s.io", "create", "create"},
		{"nodes", "get", "get list watch"},
		{"nodes/status", "", "patch"},
		{"secrets", "", ""},
		{"configmaps", "", ""},
		{"serviceaccounts/token", "", ""},
		{"events", "create patch", "create patch"},
		{"events.events.k8s.io", "", "create patch"},
		{"network-attachment-definitions.k8s.cni.cncf.io", "get list watch", "get list watch"},
		{"ipamclaims.k8s.cni.cncf.io", "get", "get list watch create patch delete"},
		{"statefulsets.apps", "", "get list watch"},
		{"statefulsets.apps/finalizers", "", ""},
		{"ipamclaims.k8s.cni.cncf.io/status", "", "patch"},
		{"ipamclaims.k8s.cni.cncf.io/finalizers", "", ""},
		{"ippools.tenure.dev", "get list watch", "get list watch create patch delete"},
		{"ippools.tenure.dev/status", "", "patch"},
		{"ippools.tenure.dev/finalizers", "", ""},
		{"ipleases.tenure.dev", "get list create patch delete", "get list watch create patch delete"},
		{"ipleases.tenure.dev/status", "patch", ""},
		{"ipleases.tenure.dev/finalizers", "", ""},
		{"ipsubleases.tenure.dev", "get list watch create patch delete", "get list watch patch delete"},
		{"ipsubleases.tenure.dev/status", "", "patch"},
		{"podnetworks.tenure.dev", "get list watch", "get list watch create patch"},
		{"podnetworks.tenure.dev/status", "", "patch"},
		{"podnetworkattachments.tenure.dev", "get list watch", "get list watch patch"},
		{"podnetworkattachments.tenure.dev/status", "", "patch"},
		{"interfaceparameters.tenure.dev", "", "get list watch"},
		{"network-attachment-definitions.k8s.cni.cncf.io in tenure-system", "get list watch", "get list watch create patch delete"},
		{"leases.coordination.k8s.io in tenure-system", "get list watch create patch", "get list watch create update patch delete"},
		{"leases.coordination.k8s.io in kube-node-lease", "", ""},
		{"secrets in tenure-system", "", ""},
		{"mutatingwebhookconfigurations.admissionregistration.k8s.io", "", ""},
		{"validatingwebhookconfigurations.admissionregistration.k8s.io", "", ""},
		{"customresourcedefinitions.apiextensions.k8s.io", "", ""},
	}
	k, err := kubernetes.NewForConfig(cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range tests {
		t.Run(tt.resource, func(t *testing.T) {
			for account, want := range map[string]string{agent: tt.agent, controller: tt.controller} {
				if got := allowed(t, k, account, tt.resource); got != want {
					t.Errorf("got %s allowed to %q; want %q", account, got, want)
				}
			}
		})
	}
}

// allowed returns the verbs that RBAC gives a service account for a resource,
// written as resource.group/subresource, or with " in namespace" behind it.
func allowed(t *testing.T, k kubernetes.Interface, account, resource string) string {
	t.Helper()
	a := authorization.ResourceAttributes{}
	resource, a.Namespace, _ = strings.Cut(resource, " in ")
	resource, a.Subresource, _ = strings.Cut(resource, "/")
	a.Resource, a.Group, _ = strings.Cut(resource, ".")
	var verbs []string
	for verb := range strings.FieldsSeq(allVerbs) {
		a.Verb = verb
		review, err := k.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorization.SubjectAccessReview{
			Spec: authorization.SubjectAccessReviewSpec{ResourceAttributes: &a, User: "system:serviceaccount:tenure-system:" + account},
		}, createOptions)
		if err != nil {
			t.Fatal(err)
		}
		if review.Status.Allowed {
			verbs = append(verbs, verb)
		}
	}
	return strings.Join(verbs, " ")
}

// TestControllerWritesClaimStatusOnly (N82): of claims that are no StatefulSet's, with the
// controller's own token.
func TestControllerWritesClaimStatusOnly(t *testing.T) {
	c := mustParse(t, `apiVersion: k8s.cni.cncf.io/v1alpha1
kind: IPAMClaim
metadata: {name: vm.lan.net1, namespace: default}
spec: {network: lan, interface: net1}
`)
	admin := cluster.Resource(claims).Namespace("default")
	if _, err := admin.Create(t.Context(), c, createOptions); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := admin.Delete(context.Background(), c.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	cfg, err := cp.ServiceAccount(t.Context(), "tenure-system", controller, nil)
	if err != nil {
		t.Fatal(err)
	}
	d, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ours := d.Resource(claims).Namespace("default")
	patch := func(body string, sub ...string) error {
		_, err := ours.Patch(t.Context(), c.GetName(), "application/merge-patch+json", []byte(body), metav1.PatchOptions{}, sub...)
		return err
	}
	if err := patch(`{"status":{"ips":["10.0.0.5/24"]}}`, "status"); err != nil {
		t.Errorf("status: got %v; want it written", err)
	}
	awaitRefusal(t, func() error {
		return ours.Delete(t.Context(), c.GetName(), metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
	})
	for what, err := range map[string]error{
		"spec": patch(`{"spec":{"network":"wan"}}`), "finalizers": patch(`{"metadata":{"finalizers":["tenure.dev/x"]}}`),
		"delete": ours.Delete(t.Context(), c.GetName(), metav1.DeleteOptions{}),
	} {
		if err == nil || !strings.Contains(err.Error(), "workload-claims.tenure.dev") {
			t.Errorf("%s: got %v; want the policy to refuse it", what, err)
		}
	}
}
