package agent

import (
	"context"
	"fmt"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// A podError says that the pod of an ADD cannot be read: what it selects is not
// known.
type podError struct{ Why string }

func (e *podError) Error() string { return e.Why }

// A selectionError says what is wrong with what the pod selects.
type selectionError struct{ Why string }

func (e *selectionError) Error() string { return e.Why }

func (a *Agent) findPod(ctx context.Context, named poolspec.Pod, live bool) (Pod, protocol.Outcome, error) {
	if live {
		return a.cl.Pods.ReadPod(ctx, named.Namespace, named.Name)
	}
	return a.cl.Pods.Pod(ctx, named.Namespace, named.Name, protocol.UID(named.UID))
}

// selectPod finds the pod, live if asked to, and in its annotation the element
// that this ADD belongs to.
func (a *Agent) selectPod(ctx context.Context, add *addCall, live bool) error {
	named := add.conf.Pod
	if named.Name == "" { // not a pod's sandbox, or a runtime that does not say
		return nil
	}
	uid := protocol.UID(named.UID)
	pod, out, err := a.findPod(ctx, named, live)
	switch {
	case out == protocol.Done && !pod.Is(uid):
		return &podError{Why: fmt.Sprintf("pod %s/%s has UID %s, and the runtime asks for one with UID %s", named.Namespace, named.Name, pod.UID, uid)}
	case out == protocol.NotFound:
		return &podError{Why: fmt.Sprintf("pod %s/%s does not exist", named.Namespace, named.Name)}
	case out != protocol.Done:
		return a.selectKnown(ctx, add, uid, err)
	}
	add.pod, add.demand.Pod = pod, pod.PodRef
	if uid != "" {
		add.demand.Pod.UID = uid // of a static pod this is not the mirror's
	}
	if named.Claim != "" {
		add.sel = npwg.Selection{Interface: add.req.IfName, Claim: named.Claim}
		return nil
	}
	selections, err := npwg.Parse(pod.Networks, pod.Namespace, npwg.AnyVersion)
	sel, ok := npwg.ByInterface(selections, add.req.IfName)
	if err != nil {
		return a.ignoreInvalid(ctx, add, sel, err)
	}
	planned := named.Unselected && uid != "" // by an annotation of this very pod
	if !ok && add.req.IfName != defaultInterface && !live && !planned {
		// The watch may be behind: what a hot-plugged interface asks for must not
		// be missed.
		return a.selectPod(ctx, add, true)
	}
	if add.sel = sel; pod.Claims == "" {
		return nil
	}
	return a.inferClaim(ctx, add, selections)
}

// ignoreInvalid says that the pod's annotation is invalid, as the delegating plugin
// finds it too: it selects nothing, and the interface is one that the pod has
// without it. Only a caller with other rules attaches an interface of the
// annotation all the same; it must not get any address where a claim's is asked for.
func (a *Agent) ignoreInvalid(ctx context.Context, add *addCall, sel npwg.Selection, cause error) error {
	why := fmt.Sprintf("pod %s: annotation %s is invalid: %v", add.pod.PodRef, npwg.AnnotationNetworks, cause)
	if sel.Claim != "" || sel.Name != "" && add.pod.Claims != "" {
		return &selectionError{Why: why}
	}
	a.log.WarnContext(ctx, "annotation ignored", "pod", add.pod.PodRef, "interface", add.key.IfName, "error", why)
	return nil
}

// defaultInterface is the default network's, which no element selects.
const defaultInterface = "eth0"

// selectKnown stands in for a pod that cannot be read: what the same interface of
// the same pod has already, it may have again.
func (a *Agent) selectKnown(ctx context.Context, add *addCall, uid protocol.UID, cause error) error {
	att, known, err := a.lastOf(ctx, add, uid)
	if err != nil {
		return err
	}
	if known {
		add.demand.Pod = att.Pod
		if att.Claim != nil {
			add.sel.Claim = att.Claim.Name
		}
		return nil
	}
	return &podError{Why: fmt.Sprintf("pod %s/%s cannot be read, so that it is not known which addresses it asks for: %v", add.conf.Pod.Namespace, add.conf.Pod.Name, cause)}
}

// lastOf returns what the store has of the ADD's interface of the pod with that UID: of several
// sandboxes, the latest.
func (a *Agent) lastOf(ctx context.Context, add *addCall, uid protocol.UID) (last store.Attachment, known bool, err error) {
	if uid == "" {
		return last, false, nil
	}
	err = a.st.ViewContext(ctx, func(tx *store.Tx) error {
		for att, err := range tx.OfPod(uid, add.key.IfName) {
			if err != nil {
				return err
			}
			if att.Network == add.key.Network && att.Generation >= last.Generation {
				last, known = att, true
			}
		}
		return nil
	})
	return last, known, err
}

func checkSelection(add *addCall) error {
	asked := len(add.conf.Requested) > 0 || len(add.sel.IPs) > 0
	switch {
	case add.sel.Claim != "" && asked:
		return &selectionError{Why: fmt.Sprintf("interface %s asks for ips and names claim %s: only one of ips and ipam-claim-reference is allowed", add.key.IfName, add.sel.Claim)}
	case len(add.sel.IPs) > 0 && len(add.conf.Requested) == 0:
		return &selectionError{Why: fmt.Sprintf("interface %s asks for ips %v, which did not reach the IPAM plugin: a plugin of network %s must declare the capability ips", add.key.IfName, add.sel.IPs, add.conf.Name)}
	}
	return nil
}
