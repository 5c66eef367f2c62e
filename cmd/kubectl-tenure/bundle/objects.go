package bundle

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordination "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/check"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
)

// A kind is one of which all objects are in the bundle.
type kind struct {
	gvk        schema.GroupVersionKind
	resource   string // as rights and files call it
	namespaced bool
}

func ofTenure(name, resource string, namespaced bool) kind {
	return kind{v1alpha1.GroupVersion.WithKind(name), resource, namespaced}
}

// kinds are those but for definitions. In a bundle of a namespace are those of a namespace, and
// pools and PodNetworks, which say what it uses.
var kinds = []kind{
	ofTenure("IPPool", "ippools", false),
	ofTenure("PodNetwork", "podnetworks", false),
	ofTenure("IPLease", "ipleases", false),
	ofTenure("IPSubLease", "ipsubleases", false),
	ofTenure("IPReservation", "ipreservations", false),
	ofTenure("PodNetworkAttachment", "podnetworkattachments", true),
	ofTenure("InterfaceParameters", "interfaceparameters", true),
	{ipamclaims.SchemeGroupVersion.WithKind("IPAMClaim"), "ipamclaims", true},
}

// definitions are what says how pods are attached.
func (b *bundle) definitions() []part {
	all := []part{b.list(kind{nad.SchemeGroupVersion.WithKind("NetworkAttachmentDefinition"), "network-attachment-definitions", true})}
	if b.namespace == "" {
		all = append(all, b.one(corev1.SchemeGroupVersion.WithKind("ConfigMap"), "configmaps", "tenure-attach"))
	}
	return all
}

// objects are all other objects that are in the bundle as they are.
func (b *bundle) objects() (all []part) {
	for _, k := range kinds {
		if b.namespace == "" || k.namespaced || k.resource == "ippools" || k.resource == "podnetworks" {
			all = append(all, b.list(k))
		}
	}
	if b.namespace != "" {
		return all
	}
	registrations := b.listIn(kind{coordination.SchemeGroupVersion.WithKind("Lease"), "leases.coordination.k8s.io", true}, b.API.RegistrationNamespace)
	registrations.name = "registrations and heartbeats"
	return append(all, registrations)
}

// workloads are what agents and controllers run by.
func (b *bundle) workloads() []part {
	if b.namespace != "" {
		return nil
	}
	return []part{
		b.one(appsv1.SchemeGroupVersion.WithKind("DaemonSet"), "daemonsets", agentName),
		b.one(appsv1.SchemeGroupVersion.WithKind("Deployment"), "deployments", controllerName),
	}
}

// list has all objects of a kind, in files of a page each.
func (b *bundle) list(k kind) part {
	if k.namespaced {
		return b.listIn(k, b.namespace)
	}
	return b.listIn(k, "")
}

func (b *bundle) listIn(k kind, namespace string) part {
	return part{k.resource, "list " + k.resource + in(namespace), func(ctx context.Context) error {
		page := &unstructured.UnstructuredList{}
		page.SetGroupVersionKind(k.gvk.GroupVersion().WithKind(k.gvk.Kind + "List"))
		pages := 0
		var failed error
		_, err := session.ListAll(ctx, patient{b.Client}, page, func(l *unstructured.UnstructuredList) []struct{} {
			if len(l.Items) == 0 || failed != nil {
				return nil
			}
			pages++
			failed = b.addObjects(k.resource, pages, l.Items)
			return nil
		}, client.InNamespace(namespace))
		if failed != nil {
			return failed
		}
		return err
	}}
}

// addObjects adds the objects of a page.
func (b *bundle) addObjects(resource string, page int, objects []unstructured.Unstructured) error {
	name := resource
	if page > 1 {
		name = fmt.Sprintf("%s-%d", resource, page)
	}
	var out bytes.Buffer
	for i := range objects {
		text, err := yaml.Marshal(b.redact.object(objects[i].Object))
		if err != nil {
			return err
		}
		out.WriteString("---\n")
		out.Write(text)
	}
	// What was left out of one may be in an earlier one, or in an earlier field.
	return b.out.add("objects/"+name+".yaml", []byte(b.redact.repeated(out.String())))
}

// one has one object of Tenure's own namespace. It may not be there.
func (b *bundle) one(gvk schema.GroupVersionKind, resource, name string) part {
	return part{resource + " " + name, "get " + resource + " in namespace " + b.API.RegistrationNamespace, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		var o unstructured.Unstructured
		o.SetGroupVersionKind(gvk)
		err := b.Client.Get(ctx, client.ObjectKey{Namespace: b.API.RegistrationNamespace, Name: name}, &o)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		return b.addObjects(resource+"-"+name, 1, []unstructured.Unstructured{o})
	}}
}

// patient bounds each page of a list.
type patient struct{ client.Client }

// List implements [client.Reader].
func (p patient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return p.Client.List(ctx, list, opts...)
}

// findings are what check finds. It judges a whole cluster alone.
func (b *bundle) findings() []part {
	if b.namespace != "" {
		return nil
	}
	return []part{{"what check finds", "do what the role tenure-operator may", func(ctx context.Context) error {
		r, err := check.Find(ctx, b.Session, check.Apart)
		if err != nil {
			return err
		}
		text, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			return err
		}
		return b.out.add("check.json", []byte(b.redact.scrub(string(text))+"\n"))
	}}}
}

// addYAML adds a value of Tenure's own making.
func (b *bundle) addYAML(name string, value any) error {
	text, err := yaml.Marshal(value)
	if err != nil {
		return err
	}
	return b.out.add(name, []byte(b.redact.scrub(string(text))))
}
