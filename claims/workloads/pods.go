package workloads

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/workload"
	"github.com/tenure-ipam/tenure/ipam/controller/networks"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/ipam/reported"
)

// claimSoon is when a machine's pod is looked at again whose claim is not there yet.
const claimSoon = 5 * time.Second

// PodClaims makes claims that are needed when a pod is there, and no sooner: by the pod's name,
// for controllers of which nothing else is known; and for a virtual machine that moves to another
// network, of which the claim that its pods name is not. These claims go with their owner.
type PodClaims struct {
	// Pods has the metadata of pods, as [CondensePod] leaves it.
	Pods client.Reader
	// Cache has claims, condensed, definitions, and the metadata of namespaces.
	Cache client.Reader
	// Live reads and writes at the API server.
	Live     client.Client
	Networks Catalog
	Events   events.EventRecorder
	Log      *slog.Logger
	// ByName says that pods get the claims that they ask for by their name.
	ByName bool

	reported reported.Faults[fault]
}

// Reconcile looks at one pod.
func (p *PodClaims) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	pod := podMetadata()
	if err := p.Pods.Get(ctx, req.NamespacedName, pod); err != nil {
		p.reported.Forget(req.NamespacedName)
		return reconcile.Result{}, client.IgnoreNotFound(err) //nolint:wrapcheck // says what it is about
	}
	if pod.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	needs, faults, err := p.byName(ctx, pod)
	if err != nil {
		return reconcile.Result{}, err
	}
	more, soon, err := p.ofMachine(ctx, pod)
	if err != nil {
		return reconcile.Result{}, err
	}
	for _, n := range append(needs, more...) {
		why, err := p.settle(ctx, pod, n)
		if err != nil {
			return reconcile.Result{}, err
		}
		if why != nil {
			faults = append(faults, *why)
		}
	}
	of := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}}
	tell(ctx, &p.reported, p.Events, p.Log.With("pod", req.String()), of, faults)
	switch {
	case len(faults) > 0:
		return reconcile.Result{RequeueAfter: recheckAfter}, nil
	case soon:
		return reconcile.Result{RequeueAfter: claimSoon}, nil
	}
	return reconcile.Result{}, nil
}

func podMetadata() *metav1.PartialObjectMetadata {
	pod := &metav1.PartialObjectMetadata{}
	pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	return pod
}

// byName returns the claims that a pod needs by its name, if it asks for such.
func (p *PodClaims) byName(ctx context.Context, o *metav1.PartialObjectMetadata) ([]need, []fault, error) {
	pod := workload.Pod{Namespace: o.Namespace, Name: o.Name, Claims: o.Annotations[workload.AnnotationClaims]}
	if _, ofSet := workload.OrdinalOfPod(kube.SetOfPod(o), o.Name); ofSet || pod.Claims == "" || !p.ByName {
		return nil, nil, nil
	}
	if asks, err := p.asksByName(ctx, o); !asks {
		return nil, nil, err
	}
	invalid := func(format string, args ...any) ([]need, []fault, error) {
		return nil, []fault{{ReasonInvalid, fmt.Sprintf(format, args...) + ": no claim is made"}}, nil
	}
	if why := kube.WhyNameless(o); why != "" {
		return invalid("%s is %s: %s", workload.ClaimsBy, workload.ByPodName, why)
	}
	if o.Annotations[workload.AnnotationRequested] != "" {
		return invalid("annotation %s counts ordinals, which StatefulSets of apps/v1 alone have: write it on the claims", workload.AnnotationRequested)
	}
	var err error
	if pod.Selections, err = npwg.Parse(o.Annotations[npwg.AnnotationNetworks], o.Namespace, npwg.AnyVersion); err != nil {
		return invalid("annotation %s: %v", npwg.AnnotationNetworks, err)
	}
	elements, err := pod.Wanted()
	if err != nil {
		return invalid("%v", err)
	}
	names := map[workload.Element]string{}
	for _, e := range elements {
		n, why, err := networkOf(ctx, p.Cache, p.Networks, e, o.Namespace)
		if err != nil {
			return nil, nil, err
		}
		if why != nil {
			return nil, []fault{*why}, nil
		}
		names[e] = n.Name
	}
	return byName(pod, *metav1.GetControllerOfNoCopy(o), names, elements), nil, nil
}

// asksByName reports whether a pod, or its namespace, asks for claims by the pod's name.
func (p *PodClaims) asksByName(ctx context.Context, o *metav1.PartialObjectMetadata) (bool, error) {
	if by := o.Annotations[workload.ClaimsBy]; by != "" {
		return by == workload.ByPodName, nil
	}
	var of metav1.PartialObjectMetadata
	of.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := p.Cache.Get(ctx, client.ObjectKey{Name: o.Namespace}, &of); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("read namespace %s: %w", o.Namespace, err)
	}
	return of.Labels[workload.ClaimsBy] == workload.ByPodName, nil
}

// ofMachine returns the claims that a virtual machine's pod needs, since the claims that it names
// are of other networks than it selects. soon says that such a claim is not there yet.
func (p *PodClaims) ofMachine(ctx context.Context, o *metav1.PartialObjectMetadata) (all []need, soon bool, err error) {
	if o.Labels[kube.LauncherLabel] != kube.Launcher {
		return nil, false, nil
	}
	// What is wrong with the annotation, the pod's ADD says.
	selections, _ := npwg.Parse(o.Annotations[npwg.AnnotationNetworks], o.Namespace, npwg.AnyVersion)
	type wish struct{ claim, definition string }
	known := map[wish]bool{}
	for _, sel := range selections {
		w := wish{sel.Claim, sel.String()}
		if sel.Claim == "" || known[w] {
			continue
		}
		if known[w] = true; len(known) > workload.MaxElements { // each may take a call
			break
		}
		var d nad.NetworkAttachmentDefinition
		if err := p.Cache.Get(ctx, client.ObjectKey{Namespace: sel.Namespace, Name: sel.Name}, &d); err != nil {
			if !apierrors.IsNotFound(err) {
				return nil, false, fmt.Errorf("read network attachment definition %s: %w", sel, err)
			}
			soon = true
			continue
		}
		of, err := p.Networks.Placed(ctx, &d, o.Namespace)
		if err != nil {
			return nil, false, fmt.Errorf("network attachment definition %s: %w", sel, err)
		}
		n, err := p.moved(ctx, o, sel.Claim, of)
		switch {
		case apierrors.IsNotFound(err):
			soon = true
		case err != nil:
			return nil, false, err
		case n != nil:
			all = append(all, *n)
		}
	}
	return all, soon, nil
}

// moved returns the claim that a machine's pod needs, if the one that it names is the machine's and
// of another network than to.
func (p *PodClaims) moved(ctx context.Context, o *metav1.PartialObjectMetadata, name string, to networks.Network) (*need, error) {
	if to.Owner != networks.Tenure {
		return nil, nil //nolint:nilnil // there is no such need
	}
	key := client.ObjectKey{Namespace: o.Namespace, Name: name}
	var named ipamclaims.IPAMClaim
	if err := p.Cache.Get(ctx, key, &named); err != nil || named.Spec.Network == to.Name {
		return nil, err //nolint:wrapcheck // the caller tells that it is not there
	}
	// Whose it is the cache does not say.
	if err := kube.Call(ctx, func(ctx context.Context) error { return p.Live.Get(ctx, key, &named) }); err != nil {
		return nil, err //nolint:wrapcheck // likewise
	}
	claim, owner := kube.ClaimOf(&named), metav1.GetControllerOfNoCopy(&named)
	ours, _ := protocol.BelongsTo(kube.PodRefOf(o), claim)
	if !ours || claim.VM == "" || claim.Deleting || claim.Network == to.Name || owner == nil || !strings.HasPrefix(owner.APIVersion, "kubevirt.io/") {
		return nil, nil //nolint:nilnil // likewise
	}
	return &need{
		name: workload.MachineClaimName(name, to.Name), network: to.Name, ifName: named.Spec.Interface, owner: ownedBy(*owner), machine: claim.VM,
	}, nil
}

// settle has the pod have a claim that it needs.
func (p *PodClaims) settle(ctx context.Context, pod *metav1.PartialObjectMetadata, n need) (*fault, error) {
	key := client.ObjectKey{Namespace: pod.Namespace, Name: n.name}
	var o ipamclaims.IPAMClaim
	err := p.Cache.Get(ctx, key, &o)
	switch {
	case err == nil && n.shown(read(&o)):
		return nil, nil //nolint:nilnil // there is nothing to tell
	case apierrors.IsNotFound(err):
		if why, exists, err := p.create(ctx, key, n); !exists {
			return why, err
		}
	case err != nil:
		return nil, fmt.Errorf("read claim %s: %w", key, err)
	}
	if err := kube.Call(ctx, func(ctx context.Context) error { return p.Live.Get(ctx, key, &o) }); err != nil {
		return nil, fmt.Errorf("read claim %s: %w", key, err)
	}
	c := read(&o)
	v := n.judge(c)
	switch {
	case v.change != nil:
		err = writeMeta(ctx, p.Live, key.Namespace, c.meta(), map[string]any{"labels": n.labels(), "ownerReferences": v.change.owners})
	case c.deleting:
		err = fmt.Errorf("claim %s is being deleted, and is to be made anew", key)
	default:
		return v.fault, nil
	}
	if kube.Classify(err) == protocol.Refused {
		return &fault{ReasonNotMade, fmt.Sprintf("claim %s is left alone: %v", n.name, err)}, nil
	}
	return nil, err
}

// create makes a claim. exists says that there is one of its name.
func (p *PodClaims) create(ctx context.Context, key client.ObjectKey, n need) (why *fault, exists bool, err error) {
	o := &ipamclaims.IPAMClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: n.name, Labels: n.labels(), OwnerReferences: []metav1.OwnerReference{n.owner}},
		Spec:       ipamclaims.IPAMClaimSpec{Network: n.network, Interface: n.ifName},
	}
	err = kube.Call(ctx, func(ctx context.Context) error { return p.Live.Create(ctx, o) })
	switch kube.Classify(err) {
	case protocol.Done:
		p.Log.InfoContext(ctx, "claim made", "claim", key.String(), "network", n.network, "owner", n.owner.Kind+" "+n.owner.Name)
		return nil, false, nil
	case protocol.Exists:
		return nil, true, nil
	case protocol.Refused:
		return &fault{ReasonNotMade, fmt.Sprintf("claim %s: %v", n.name, err)}, false, nil
	default:
		return nil, false, fmt.Errorf("make claim %s: %w", key, err)
	}
}
