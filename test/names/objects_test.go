package names_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/attach/names"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// within is how long the controller has to take notice.
const within = 10 * time.Second

// definition makes a definition.
func definition(t *testing.T, namespace, name string) *nad.NetworkAttachmentDefinition {
	t.Helper()
	return fleet.Create(t, kc, &nad.NetworkAttachmentDefinition{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       nad.NetworkAttachmentDefinitionSpec{Config: `{"cniVersion":"1.0.0","name":"x","type":"bridge"}`},
	})
}

// service makes a headless Service that asks for the addresses of the pods with label app.
func service(t *testing.T, name, network, app string, change ...func(*corev1.Service)) *corev1.Service {
	t.Helper()
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: name, Annotations: map[string]string{names.AnnotationNetwork: network, names.AnnotationSelector: "app=" + app}},
		Spec:       corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone},
	}
	for _, c := range change {
		c(s)
	}
	return fleet.Create(t, kc, s)
}

// A pod is what a test wants to have of one.
type pod struct {
	name, app, subdomain string
	selects, network     string   // what the annotation says, and the name in the status
	addrs                []string // on the network
	ready                bool
	more                 func(*corev1.Pod)
}

// make makes a pod that runs on node a, as its kubelet and who attaches it say it.
func (p pod) make(t testing.TB) *corev1.Pod {
	t.Helper()
	o := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: p.name, Labels: map[string]string{"app": p.app}, Annotations: map[string]string{
			npwg.AnnotationNetworks: p.selects, npwg.AnnotationStatus: p.status(t),
		}},
		Spec: corev1.PodSpec{
			NodeName: "a", Subdomain: p.subdomain,
			Containers: []corev1.Container{{Name: "c", Image: "none", Ports: []corev1.ContainerPort{{Name: "sql", ContainerPort: 5432}}}},
		},
	}
	if p.subdomain != "" {
		o.Spec.Hostname = p.name
	}
	if p.more != nil {
		p.more(o)
	}
	fleet.Create(t, kc, o)
	o.Status.Phase, o.Status.PodIP, o.Status.PodIPs = corev1.PodRunning, "10.1.0.2", []corev1.PodIP{{IP: "10.1.0.2"}}
	setReady(t, o, p.ready)
	return o
}

func (p pod) status(t testing.TB) string {
	t.Helper()
	text, err := json.Marshal([]npwg.Status{{Name: "cluster", Default: true, IPs: []string{"10.1.0.2"}}, {Name: p.network, Interface: "net1", IPs: p.addrs}})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// setReady writes a pod's status, as its kubelet does.
func setReady(t testing.TB, o *corev1.Pod, ready bool) {
	t.Helper()
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	o.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status, LastProbeTime: metav1.Now()}}
	if err := kc.Status().Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// slicesOf returns the slices of a Service, whoever has made them.
func slicesOf(t testing.TB, service string) []discovery.EndpointSlice {
	t.Helper()
	var list discovery.EndpointSliceList
	if err := kc.List(t.Context(), &list, client.InNamespace(team), client.MatchingLabels{discovery.LabelServiceName: service}); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// publishes waits until the slices of a Service say this, in order, of each address.
func publishes(t *testing.T, service string, want ...string) {
	t.Helper()
	fleet.Eventually(t, within, func() error {
		got := []string{}
		for _, s := range slicesOf(t, service) {
			for i := range s.Endpoints {
				got = append(got, say(&s, &s.Endpoints[i]))
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			return fmt.Errorf("Service %s (-want +got):\n%s", service, cmp.Diff(want, got))
		}
		return nil
	})
}

// say writes an endpoint as a line.
func say(s *discovery.EndpointSlice, e *discovery.Endpoint) string {
	line := []string{string(s.AddressType), strings.Join(e.Addresses, "+"), e.TargetRef.Name}
	for _, c := range []struct {
		name string
		is   *bool
	}{{"ready", e.Conditions.Ready}, {"serving", e.Conditions.Serving}, {"terminating", e.Conditions.Terminating}} {
		if *c.is {
			line = append(line, c.name)
		}
	}
	if e.Hostname != nil {
		line = append(line, "named "+*e.Hostname)
	}
	var ports []string
	for _, p := range s.Ports {
		ports = append(ports, fmt.Sprintf("%s:%d", *p.Name, *p.Port))
	}
	slices.Sort(ports)
	return strings.Join(append(line, ports...), " ")
}

// noSlices waits until a Service has no slice.
func noSlices(t *testing.T, service string) {
	t.Helper()
	fleet.Eventually(t, within, func() error {
		if all := slicesOf(t, service); len(all) > 0 {
			return fmt.Errorf("Service %s has %d slices; want none", service, len(all))
		}
		return nil
	})
}

// refused waits until an Event on a Service says why it gets nothing.
func refused(t *testing.T, s *corev1.Service, words string) {
	t.Helper()
	if e := fleet.Event(t, kc, s, names.ReasonRefused, words); e.Type != corev1.EventTypeWarning {
		t.Errorf("the Event is %s; want a warning", e.Type)
	}
}
