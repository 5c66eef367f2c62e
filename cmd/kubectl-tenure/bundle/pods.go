package bundle

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
)

// podView is what the bundle has of a pod.
type podView struct {
	Namespace   string                `json:"namespace"`
	Name        string                `json:"name"`
	UID         string                `json:"uid"`
	Node        string                `json:"node,omitempty"`
	Phase       corev1.PodPhase       `json:"phase"`
	Created     time.Time             `json:"created"`
	Deleting    *metav1.Time          `json:"deleting,omitempty"`
	Conditions  []corev1.PodCondition `json:"conditions,omitempty"`
	Annotations map[string]string     `json:"annotations,omitempty"`
}

// eventView is what the bundle has of an Event.
type eventView struct {
	About     string    `json:"about"` // kind and name
	Namespace string    `json:"namespace"`
	Type      string    `json:"type"`
	Reason    string    `json:"reason"`
	Message   string    `json:"message"`
	Count     int32     `json:"count"`
	First     time.Time `json:"first"`
	Last      time.Time `json:"last"`
	From      string    `json:"from"`
}

// nodeView is what the bundle has of a Node.
type nodeView struct {
	Name       string                 `json:"name"`
	UID        string                 `json:"uid"`
	Created    time.Time              `json:"created"`
	Kubelet    string                 `json:"kubelet"`
	Runtime    string                 `json:"runtime"`
	Kernel     string                 `json:"kernel"`
	Image      string                 `json:"image"`
	Taints     []corev1.Taint         `json:"taints,omitempty"`
	Conditions []corev1.NodeCondition `json:"conditions,omitempty"`
}

// in says for people of what a list is: of a namespace, or of the whole cluster.
func in(namespace string) string {
	if namespace == "" {
		return ""
	}
	return " in namespace " + namespace
}

// podsThatSelect are the pods that select networks. It adds their UIDs to selecting.
func (b *bundle) podsThatSelect(selecting map[types.UID]bool) part {
	return part{"pods that select networks", "list pods" + in(b.namespace), func(ctx context.Context) error {
		views, err := session.ListAll(ctx, patient{b.Client}, &corev1.PodList{}, func(l *corev1.PodList) (views []podView) {
			for i := range l.Items {
				if selects(&l.Items[i]) {
					selecting[l.Items[i].UID] = true
					views = append(views, b.viewOf(&l.Items[i]))
				}
			}
			return views
		}, client.InNamespace(b.namespace))
		if err != nil {
			return err
		}
		return b.addYAML("pods.yaml", views)
	}}
}

// eventsAndNodes are the Events about pods that select networks and about what is Tenure's, and the
// Nodes.
func (b *bundle) eventsAndNodes(ours *programs, selecting map[types.UID]bool) []part {
	all := []part{{"Events", "list events" + in(b.namespace), func(ctx context.Context) error {
		views, err := session.ListAll(ctx, patient{b.Client}, &corev1.EventList{}, func(l *corev1.EventList) (views []eventView) {
			for i := range l.Items {
				if e := &l.Items[i]; selecting[e.InvolvedObject.UID] || ours.uid[e.InvolvedObject.UID] || aboutOurs(e) {
					views = append(views, eventOf(e))
				}
			}
			return views
		}, client.InNamespace(b.namespace))
		if err != nil {
			return err
		}
		slices.SortFunc(views, func(a, b eventView) int { return a.Last.Compare(b.Last) })
		return b.addYAML("events.yaml", views)
	}}}
	if b.namespace != "" {
		return all
	}
	return append(all, part{"nodes", "list nodes", func(ctx context.Context) error {
		views, err := session.ListAll(ctx, patient{b.Client}, &corev1.NodeList{}, func(l *corev1.NodeList) (views []nodeView) {
			for i := range l.Items {
				views = append(views, nodeOf(&l.Items[i]))
			}
			return views
		})
		if err != nil {
			return err
		}
		return b.addYAML("nodes.yaml", views)
	}})
}

// selects reports whether a pod selects networks, or Tenure has to do with it otherwise.
func selects(o *corev1.Pod) bool {
	for name := range o.Annotations {
		if name == npwg.AnnotationNetworks || name == podnetwork.AnnotationNetworks || strings.HasPrefix(name, "tenure.dev/") {
			return true
		}
	}
	return false
}

func (b *bundle) viewOf(o *corev1.Pod) podView {
	v := podView{
		Namespace: o.Namespace, Name: o.Name, UID: string(o.UID), Node: o.Spec.NodeName, Phase: o.Status.Phase, Created: o.CreationTimestamp.Time, Deleting: o.DeletionTimestamp,
		Conditions: o.Status.Conditions, Annotations: map[string]string{},
	}
	for name, text := range o.Annotations {
		if ownAnnotation(name) {
			v.Annotations[name] = b.redact.text(text)
		}
	}
	return v
}

// aboutOurs reports whether an Event is about an object of Tenure's or a definition or claim, or is
// Tenure's.
func aboutOurs(e *corev1.Event) bool {
	group, _, _ := strings.Cut(e.InvolvedObject.APIVersion, "/")
	if group == v1alpha1.GroupVersion.Group || group == "k8s.cni.cncf.io" {
		return true
	}
	return slices.ContainsFunc([]string{e.Source.Component, e.ReportingController}, func(from string) bool { return from == agentName || from == controllerName })
}

func eventOf(e *corev1.Event) eventView {
	v := eventView{
		About: e.InvolvedObject.Kind + " " + e.InvolvedObject.Name, Namespace: e.Namespace, Type: e.Type, Reason: e.Reason, Message: e.Message, Count: max(1, e.Count),
		First: e.FirstTimestamp.Time, Last: e.LastTimestamp.Time, From: e.Source.Component,
	}
	if v.From == "" {
		v.From = e.ReportingController
	}
	if v.First.IsZero() {
		v.First = e.EventTime.Time
	}
	if v.Last.IsZero() {
		v.Last = v.First
	}
	return v
}

func nodeOf(o *corev1.Node) nodeView {
	i := o.Status.NodeInfo
	return nodeView{
		Name: o.Name, UID: string(o.UID), Created: o.CreationTimestamp.Time, Kubelet: i.KubeletVersion, Runtime: i.ContainerRuntimeVersion, Kernel: i.KernelVersion, Image: i.OSImage,
		Taints: o.Spec.Taints, Conditions: o.Status.Conditions,
	}
}
