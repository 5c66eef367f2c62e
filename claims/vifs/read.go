package vifs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/api/vif"
	"github.com/tenure-ipam/tenure/ipam/kube"
)

// facts reads what a plan for a pod is made of. Of a pod that selects no VIF definition
// there are no elements.
func (r *Reconciler) facts(ctx context.Context, pod *corev1.Pod) (facts, error) {
	_, static := pod.Annotations[corev1.MirrorPodAnnotationKey]
	f := facts{
		namespace: pod.Namespace, name: pod.Name, uid: pod.UID, static: static, hostNetwork: pod.Spec.HostNetwork,
		written: pod.Annotations[vif.AnnotationMap], kuryr: pod.Annotations[vif.AnnotationKuryrMap], asksKuryr: r.Kuryr,
	}
	var unread error
	selections, err := npwg.Parse(pod.Annotations[npwg.AnnotationNetworks], pod.Namespace, func(namespace, name string) npwg.Version {
		var o nad.NetworkAttachmentDefinition
		_, err := kube.Read(ctx, r.Cache, client.ObjectKey{Namespace: namespace, Name: name}, &o)
		unread = errors.Join(unread, err)
		return npwg.VersionOf(o.Annotations, npwg.V13)
	})
	if unread != nil {
		return f, unread
	}
	if f.unreadable = err; len(selections) > vif.MaxSelections {
		f.unreadable = fmt.Errorf("it has %d elements: %d can be", len(selections), vif.MaxSelections)
		selections = selections[:vif.MaxSelections]
	}
	for i, sel := range selections {
		var o nad.NetworkAttachmentDefinition
		found, err := kube.Read(ctx, r.Cache, client.ObjectKey{Namespace: sel.Namespace, Name: sel.Name}, &o)
		if err != nil {
			return f, err
		}
		if !found || !vif.Is(o.Annotations, o.Spec.Config) {
			f.others = append(f.others, sel.Interface)
			continue
		}
		e := element{Selection: sel, ifName: vif.Interface(sel, i, o.Annotations)}
		if e.forbidden, err = r.forbidden(ctx, &o, pod.Namespace); err != nil {
			return f, err
		}
		if len(f.elements) <= maxElements { // no more are needed to see that there are too many
			if e.network, err = r.network(ctx, &o); err != nil {
				return f, err
			}
			if e.claim, err = r.claim(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: e.claimOf(f)}); err != nil {
				return f, err
			}
		}
		f.elements = append(f.elements, e)
	}
	return f, nil
}

// forbidden says why pods of a namespace may not use a definition; empty: they may. Those of
// another namespace may only if the definition itself says so, since claims use up its pool.
func (r *Reconciler) forbidden(ctx context.Context, o *nad.NetworkAttachmentDefinition, namespace string) (string, error) {
	if o.Namespace == namespace {
		return "", nil
	}
	var of metav1.PartialObjectMetadata
	if _, ok := o.Annotations[npwg.AnnotationSelector]; ok {
		of.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
		if _, err := kube.Read(ctx, r.Cache, client.ObjectKey{Name: namespace}, &of); err != nil {
			return "", err
		}
	}
	why, _ := npwg.WhyForbidden(o.Annotations, namespace, of.Labels)
	if why != "" {
		why += ": use a definition of the pod's own namespace, or have the definition's owner name the pod's in its annotation " + npwg.AnnotationNamespaces
	}
	return why, nil
}

// config is what is read of the configuration of a definition that is made.
type config struct {
	Name         string          `json:"name"`
	Type         string          `json:"type"`
	VLAN         int32           `json:"vlanId"` // of plugin vlan
	MTU          int32           `json:"mtu"`
	Capabilities map[string]bool `json:"capabilities"`
	IPAM         struct {
		Pool string `json:"pool"`
	} `json:"ipam"`
}

// network reads the definition that is made of o. It is nil before there is one of what o says now.
func (r *Reconciler) network(ctx context.Context, o *nad.NetworkAttachmentDefinition) (*network, error) {
	var made nad.NetworkAttachmentDefinition
	found, err := kube.Read(ctx, r.Cache, client.ObjectKey{Namespace: podnetwork.Namespace, Name: vif.DefinitionName(o.Namespace, o.Name)}, &made)
	if !found || made.Annotations[podnetwork.AnnotationMadeFor] != vif.Fingerprint(o.Annotations) {
		return nil, err
	}
	var c config
	if err := json.Unmarshal([]byte(made.Spec.Config), &c); err != nil {
		return nil, nil //nolint:nilerr,nilnil // somebody has edited it: it is put back, and its event leads here
	}
	n := &network{name: c.Name, plugin: c.Type, takesMAC: c.Capabilities["mac"], mtu: c.MTU, vlan: c.VLAN}
	var pool v1alpha1.IPPool
	if found, err = kube.Read(ctx, r.Cache, client.ObjectKey{Name: c.IPAM.Pool}, &pool); found {
		n.addPool(&pool)
	}
	return n, err
}

// addPool adds what a pool says.
func (n *network) addPool(pool *v1alpha1.IPPool) {
	n.pool, n.poolUID, n.neutron = pool.Name, string(pool.UID), pool.Spec.Source != nil
	for _, o := range pool.Spec.Ranges {
		// What cannot be read is of a pool that serves nobody, and says so.
		if cidr, err := netip.ParsePrefix(o.CIDR); err == nil {
			n.ranges = append(n.ranges, addrRange{cidr.Masked(), addr(o.Start), addr(o.End), addr(o.Gateway)})
		}
	}
	for _, r := range pool.Spec.Routes {
		n.routes = append(n.routes, vif.Route(r))
	}
	if pool.Spec.DNS != nil {
		n.nameservers = pool.Spec.DNS.Nameservers
	}
}

// addr reads an address; it is not valid where there is none.
func addr(text string) netip.Addr {
	a, _ := netip.ParseAddr(text)
	return a
}

// claim reads a claim; nil: there is none.
func (r *Reconciler) claim(ctx context.Context, key client.ObjectKey) (*claim, error) {
	var o ipamclaims.IPAMClaim
	found, err := kube.Read(ctx, r.Cache, key, &o)
	if !found {
		return nil, err
	}
	c := claimOf(&o)
	c.portShown = c.port.ID != "" && r.PortShown(c.uid, c.port)
	return c, nil
}

func claimOf(o *ipamclaims.IPAMClaim) *claim {
	c := &claim{
		uid: o.UID, network: o.Spec.Network, ifName: o.Spec.Interface, owners: o.OwnerReferences, deleting: o.DeletionTimestamp != nil,
		ips: o.Status.IPs,
	}
	c.port, c.portFault = vif.ParsePort(o.Annotations[vif.AnnotationPort])
	if why := meta.FindStatusCondition(o.Status.Conditions, kube.ConditionIPsAllocated); why != nil && why.Status == metav1.ConditionFalse {
		c.failed = why.Reason + ": " + why.Message
	}
	return c
}
