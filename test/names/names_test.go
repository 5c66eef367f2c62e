package names_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/attach/names"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// TestStatefulSet: pods get names by their hostnames, with both families, as they become ready, and
// lose them when they go.
func TestStatefulSet(t *testing.T) {
	definition(t, team, "lan")
	s := service(t, "db", "lan", "db", func(s *corev1.Service) { s.Labels = map[string]string{"tier": "back"} })
	a := pod{"db-0", "db", "db", "lan", "team/lan", []string{"10.9.0.5", "fd00::5"}, true, nil}.make(t)
	b := pod{"db-1", "db", "db", "lan", "team/lan", []string{"10.9.0.6", "fd00::6"}, false, nil}.make(t)
	pod{"web-0", "web", "web", "lan", "team/lan", []string{"10.9.0.7"}, true, nil}.make(t)
	pod{"db-elsewhere", "db", "", "wan", "team/wan", []string{"10.8.0.5"}, true, nil}.make(t)
	publishes(t, "db", "IPv4 10.9.0.5 db-0 ready serving named db-0", "IPv4 10.9.0.6 db-1 named db-1",
		"IPv6 fd00::5 db-0 ready serving named db-0", "IPv6 fd00::6 db-1 named db-1")
	for _, o := range slicesOf(t, "db") {
		e, owner := o.Endpoints[0], metav1.GetControllerOf(&o)
		if o.Labels[discovery.LabelManagedBy] != names.ManagedBy || o.Labels["tier"] != "back" || owner == nil || owner.UID != s.UID || len(o.Ports) != 0 {
			t.Errorf("slice %+v, owner %v; want one of the Service's, labelled, without ports", o.ObjectMeta, owner)
		}
		if *e.NodeName != "a" || *e.Zone != "east" || e.TargetRef.Kind != "Pod" || e.TargetRef.UID != a.UID && e.TargetRef.UID != b.UID {
			t.Errorf("endpoint %+v; want node and pod", e)
		}
	}
	setReady(t, b, true)
	// The pod gets another sandbox: kubelet and meta-plugin write by and by.
	fleet.Edit(t, kc, a, func() {
		a.Annotations[npwg.AnnotationStatus] = pod{network: "team/lan", addrs: []string{"10.9.0.15"}}.status(t)
	})
	publishes(t, "db", "IPv4 10.9.0.15 db-0 ready serving named db-0", "IPv4 10.9.0.6 db-1 ready serving named db-1", "IPv6 fd00::6 db-1 ready serving named db-1")
	fleet.Edit(t, kc, a, func() { a.Labels["app"] = "other" })
	publishes(t, "db", "IPv4 10.9.0.6 db-1 ready serving named db-1", "IPv6 fd00::6 db-1 ready serving named db-1")
	fleet.Delete(t, kc, b)
	publishes(t, "db")
	fleet.Delete(t, kc, s)
	noSlices(t, "db")
}

// TestPorts: ports are those of the Service, by number and by the pod's name for it. Of one family
// alone is what the Service is; not ready is published where it says so, and so is a pod that ends.
func TestPorts(t *testing.T) {
	definition(t, team, "ports")
	kept := func(o *corev1.Pod) { o.Finalizers = []string{"example.org/kept"} }
	p := pod{"one", "ports", "", "ports", "team/ports", []string{"10.9.1.5", "fd00:1::5"}, false, kept}.make(t)
	service(t, "ports", "ports", "ports", func(s *corev1.Service) {
		onlyIPv4(s)
		s.Spec.PublishNotReadyAddresses = true
		s.Spec.Ports = []corev1.ServicePort{{Name: "sql", Port: 80, TargetPort: intstr.FromString("sql")}, {Name: "admin", Port: 81}}
	})
	publishes(t, "ports", "IPv4 10.9.1.5 one ready admin:81 sql:5432")
	fleet.Delete(t, kc, p)
	publishes(t, "ports", "IPv4 10.9.1.5 one ready terminating admin:81 sql:5432")
	fleet.Edit(t, kc, p, func() { p.Finalizers = nil })
	publishes(t, "ports")
}

// onlyIPv4 asks for one family. What is headless and selects no pods has both by default.
func onlyIPv4(s *corev1.Service) {
	s.Spec.IPFamilies, s.Spec.IPFamilyPolicy = []corev1.IPFamily{corev1.IPv4Protocol}, new(corev1.IPFamilyPolicySingleStack)
}

// TestRefused: a Service that gets nothing says why, and gets it as soon as that has an end.
func TestRefused(t *testing.T) {
	definition(t, team, "strict")
	pod{"strict", "strict", "", "strict", "team/strict", []string{"10.9.2.5"}, true, nil}.make(t)
	for i, tt := range []struct {
		words       string
		change, end func(*corev1.Service)
	}{
		{
			"want a label selector", func(s *corev1.Service) { s.Annotations[names.AnnotationSelector] = "app in strict" },
			func(s *corev1.Service) { s.Annotations[names.AnnotationSelector] = "app in (strict)" },
		},
		{
			"there is no NetworkAttachmentDefinition team/none, and no PodNetwork none", func(s *corev1.Service) { s.Annotations[names.AnnotationNetwork] = "none" },
			func(s *corev1.Service) { s.Annotations[names.AnnotationNetwork] = "team/strict" },
		},
		{
			"it has spec.selector", func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": "nobody"} },
			func(s *corev1.Service) { s.Spec.Selector = nil },
		},
		{
			"the cluster's default network have names by a Service with spec.selector", func(s *corev1.Service) { s.Annotations[names.AnnotationNetwork] = "default" },
			func(s *corev1.Service) { s.Annotations[names.AnnotationNetwork] = "strict" },
		},
	} {
		s := service(t, fmt.Sprintf("refused-%d", i), "strict", "strict", tt.change)
		refused(t, s, tt.words)
		publishes(t, s.Name)
		fleet.Edit(t, kc, s, func() { tt.end(s) })
		publishes(t, s.Name, "IPv4 10.9.2.5 strict ready serving")
	}
}

// TestEnd: slices go when the Service asks no more, or its network is gone, also while no
// controller runs. Those of others stay.
func TestEnd(t *testing.T) {
	d := definition(t, team, "ends")
	s := service(t, "ends", "ends", "ends")
	pod{"ends", "ends", "", "ends", "team/ends", []string{"10.9.3.5"}, true, nil}.make(t)
	const published = "IPv4 10.9.3.5 ends ready serving"
	publishes(t, "ends", published)
	others := fleet.Create(t, kc, &discovery.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: team, Name: "ends-by-hand", Labels: map[string]string{discovery.LabelServiceName: "ends", discovery.LabelManagedBy: "hand"}},
		AddressType: discovery.AddressTypeIPv4,
	})
	fleet.Delete(t, kc, d)
	refused(t, s, "there is no NetworkAttachmentDefinition team/ends")
	publishes(t, "ends")
	definition(t, team, "ends")
	publishes(t, "ends", published)

	if err := stop(); err != nil {
		t.Fatal(err)
	}
	fleet.Edit(t, kc, s, func() { s.Annotations = nil })
	if err := start(t.Context()); err != nil {
		t.Fatal(err)
	}
	fleet.Eventually(t, within, func() error {
		if all := slicesOf(t, "ends"); len(all) != 1 || all[0].UID != others.UID {
			return fmt.Errorf("slices %+v; want %s alone", all, others.Name)
		}
		return nil
	})
}

// TestRepair: slices that somebody else changes or deletes are put right.
func TestRepair(t *testing.T) {
	definition(t, team, "broken")
	pod{"broken", "broken", "", "broken", "team/broken", []string{"10.9.4.5"}, true, nil}.make(t)
	service(t, "broken", "broken", "broken", onlyIPv4)
	const published = "IPv4 10.9.4.5 broken ready serving"
	publishes(t, "broken", published)
	o := slicesOf(t, "broken")[0]
	fleet.Edit(t, kc, &o, func() { o.Endpoints[0].Addresses = []string{"10.66.6.6"} })
	publishes(t, "broken", published)
	fleet.Delete(t, kc, &o)
	publishes(t, "broken", published)
}

// TestElsewhere: a definition of another namespace says whose Services it serves. The labels of
// namespaces may change.
func TestElsewhere(t *testing.T) {
	d := definition(t, infra, "shared")
	pod{"elsewhere", "elsewhere", "", "infra/shared", "infra/shared", []string{"10.9.5.5"}, true, nil}.make(t)
	s := service(t, "elsewhere", "infra/shared", "elsewhere")
	const published = "IPv4 10.9.5.5 elsewhere ready serving"
	publishes(t, "elsewhere", published)
	fleet.Edit(t, kc, d, func() { d.Annotations = map[string]string{npwg.AnnotationNamespaces: "other"} })
	refused(t, s, "its own annotation does not let pods of namespace team use it")
	noSlices(t, "elsewhere")
	fleet.Edit(t, kc, d, func() { d.Annotations = map[string]string{npwg.AnnotationSelector: "names=yes"} })
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team}}
	fleet.Edit(t, kc, ns, func() { ns.Labels["names"] = "yes" })
	publishes(t, "elsewhere", published)
	fleet.Edit(t, kc, ns, func() { delete(ns.Labels, "names") })
	noSlices(t, "elsewhere")
}

// TestPodNetwork: the name of a PodNetwork counts where there is no such definition.
func TestPodNetwork(t *testing.T) {
	s := service(t, "office", "office", "office")
	refused(t, s, "no PodNetwork office")
	fleet.Create(t, kc, &v1alpha1.PodNetwork{ObjectMeta: metav1.ObjectMeta{Name: "office"}, Spec: v1alpha1.PodNetworkSpec{Provider: podnetwork.Provider}})
	listed := pod{"office", "office", "", "", "office", []string{"10.9.6.5"}, true, func(o *corev1.Pod) {
		delete(o.Annotations, npwg.AnnotationNetworks)
		o.Annotations[podnetwork.AnnotationNetworks] = `[{"podNetworkName":"office"}]`
		o.Annotations[podnetwork.AnnotationIPs] = `[{"ip":"10.9.6.5","podNetwork":"office","interfaceName":"net1"}]`
	}}
	listed.make(t)
	publishes(t, "office", "IPv4 10.9.6.5 office ready serving")
}

// TestWithoutRole: a controller that has not been given the role does all else.
func TestWithoutRole(t *testing.T) {
	b := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "tenure-controller-names"}}
	if err := kc.Get(t.Context(), client.ObjectKeyFromObject(b), b); err != nil {
		t.Fatal(err)
	}
	again := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: b.Name}, RoleRef: b.RoleRef, Subjects: b.Subjects}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	fleet.Delete(t, kc, b)
	as := asController(t)
	listed := func() error {
		return as.List(t.Context(), &discovery.EndpointSliceList{})
	}
	fleet.Eventually(t, within, func() error { // the authorizer hears of it
		if err := listed(); !apierrors.IsForbidden(err) {
			return fmt.Errorf("EndpointSlices are listed: %w", err)
		}
		return nil
	})
	if err := start(t.Context()); err != nil {
		t.Fatal(err)
	}
	definition(t, team, "later")
	pod{"later", "later", "", "later", "team/later", []string{"10.9.7.5"}, true, nil}.make(t)
	service(t, "later", "later", "later")
	n := fleet.Create(t, kc, &v1alpha1.PodNetwork{ObjectMeta: metav1.ObjectMeta{Name: "works"}, Spec: v1alpha1.PodNetworkSpec{Provider: podnetwork.Provider}})
	fleet.Eventually(t, within, func() error {
		if err := kc.Get(t.Context(), client.ObjectKeyFromObject(n), n); err != nil || len(n.Status.Conditions) == 0 {
			return fmt.Errorf("PodNetwork %s has no condition: %w", n.Name, err)
		}
		return nil
	})
	if all := slicesOf(t, "later"); len(all) > 0 {
		t.Errorf("without the role there are %d slices", len(all))
	}
	fleet.Create(t, kc, again)
	fleet.Eventually(t, within, listed)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if err := start(t.Context()); err != nil {
		t.Fatal(err)
	}
	publishes(t, "later", "IPv4 10.9.7.5 later ready serving")
}

// asController returns a client that has the controller's name and rights.
func asController(t *testing.T) client.Client {
	t.Helper()
	opts, err := kube.ClientOptions(role)
	if err != nil {
		t.Fatal(err)
	}
	as, err := client.New(role, opts)
	if err != nil {
		t.Fatal(err)
	}
	return as
}

// TestPolicy: the controller's rights end where its own slices do.
func TestPolicy(t *testing.T) {
	as := asController(t)
	s := fleet.Create(t, kc, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "others"}, Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone}})
	of := func(managedBy string, owner *corev1.Service) *discovery.EndpointSlice {
		return &discovery.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: team, GenerateName: "others-", Labels: map[string]string{discovery.LabelServiceName: "others", discovery.LabelManagedBy: managedBy},
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("Service"))},
			},
			AddressType: discovery.AddressTypeIPv4,
		}
	}
	denied := func(what string, err error, words string) {
		t.Helper()
		if !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v; want it denied with %q", what, err, words)
		}
	}
	const alone = "those EndpointSlices alone that it makes itself"
	denied("create another's", as.Create(t.Context(), of("hand", s)), alone)
	another := s.DeepCopy()
	another.Name = "kubernetes"
	denied("create one for another Service", as.Create(t.Context(), of(names.ManagedBy, another)), "belongs to the Service that its label")
	hand := fleet.Create(t, kc, of("hand", s))
	changed := hand.DeepCopy()
	changed.Labels[discovery.LabelManagedBy] = names.ManagedBy
	denied("take another's", as.Update(t.Context(), changed), alone)
	denied("delete another's", as.Delete(t.Context(), hand), alone)
}
