package protocol

import (
	"fmt"
	"net/netip"
	"slices"
)

// ConfirmLease decides, by the pool as read live after the lease was created, whether the lease may
// be used. It may if the pool for which it was created is there and open, has blocks of this size,
// and has addresses of this block. why is a sentence for people.
func ConfirmLease(r LeaseRight, pool Pool, outcome Outcome) (ok bool, why string) {
	if ok, why := ConfirmKept(r, pool, outcome); !ok {
		return false, why
	}
	switch {
	case !pool.Open:
		return false, fmt.Sprintf("pool %s is closed", r.Pool)
	case pool.Edited:
		return false, fmt.Sprintf("pool %s was edited, and the controller has not accepted it yet", r.Pool)
	case !pool.Covers(r.Block):
		return false, fmt.Sprintf("pool %s has no address of %v any more", r.Pool, r.Block)
	}
	return true, ""
}

// ConfirmKept decides, by the pool as read live after the lease was created, whether an address of
// the lease may be kept for a pod of another IPAM. The pool may be closed, and the controller need
// not have accepted its last edit: both wait until such addresses are kept. Before the block size
// changes the pool has none, and then the leases are listed: either the list has this lease, or the
// pool was read without a size.
func ConfirmKept(r LeaseRight, pool Pool, outcome Outcome) (ok bool, why string) {
	switch {
	case outcome == NotFound:
		return false, fmt.Sprintf("pool %s does not exist", r.Pool)
	case pool.UID != r.PoolUID:
		return false, fmt.Sprintf("pool %s was deleted and created again", r.Pool)
	case pool.Deleting:
		return false, fmt.Sprintf("pool %s is being deleted", r.Pool)
	case pool.BlockBits(r.Block.Addr()) != r.Block.Bits():
		return false, fmt.Sprintf("pool %s has other blocks than %v", r.Pool, r.Block)
	}
	return true, ""
}

// Confirmation is [ConfirmLease] as the answer to a [CallConfirm]. Unknown means that the lease
// waits. It waits until the controller has accepted an edit of the pool: while nobody had a lease
// of the block, another pool may have come to have the block. A lease that is Held already, and had
// vanished, also waits for a closed pool to open: the pool may be closed because the API server's
// data went back in time, and lost the lease. It does not wait for a pool that has blocks of
// another size by now: that pool waits for the lease to go.
func Confirmation(r Right, pool Pool, outcome Outcome) (Outcome, string) {
	ok, why := ConfirmLease(r.LeaseRight, pool, outcome)
	switch {
	case ok:
		return Done, ""
	case outcome != Done || pool.UID != r.PoolUID || pool.Deleting || pool.BlockBits(r.Block.Addr()) != r.Block.Bits():
		return Refused, why
	case pool.Open && pool.Edited, !pool.Open && r.Phase == Held:
		return Unknown, why
	default:
		return Refused, why
	}
}

// ConfirmRequest decides what became of the request of r, by the sub-lease as read live. With Done
// it returns the addresses and their leases. Unknown means that the controller has not answered
// yet.
//
// An answer is written once. If r has an answer and the sub-lease has none any more, the API
// server's data went back in time, and the grants are gone too. The controller does not know of
// them, and may give the addresses to others once the pools wait no more. restored says that
// they still wait: until then the request may yet get the answer that it had.
func ConfirmRequest(r Right, s SubLease, restored bool) (addrs []netip.Addr, leases []string, outcome Outcome, why string) {
	switch {
	case s.Refused != nil:
		return nil, nil, Refused, s.Refused.Message
	case len(s.Granted) == 0 && len(r.Addrs) > 0 && !restored:
		return nil, nil, Refused, fmt.Sprintf("request %s has not the answer any more that it had: the API server's data went back to before it", r.Name)
	case len(s.Granted) == 0:
		return nil, nil, Unknown, "waits for the controller's answer"
	}
	for _, g := range s.Granted {
		addrs, leases = append(addrs, g.Addr), append(leases, g.Lease)
	}
	return addrs, leases, Done, ""
}

// A Claim is what the protocol reads of an IPAMClaim.
type Claim struct {
	Meta
	Namespace string
	Network   string
	Interface string
	// IPs is the status's copy of the grants.
	IPs []netip.Prefix
	// Owner is the first owner reference, zero if there is none; VM is the label
	// by which KubeVirt's controller names the virtual machine.
	Owner OwnerRef
	VM    string
	// StatefulSet is the label by which Tenure's controller names the StatefulSet that the
	// claim was made for.
	StatefulSet string
	// ByName is the label by which Tenure's controller names, by its UID, the owner of the pods
	// that the claim was made for by their name.
	ByName UID
	// Failed says, in the words of its condition, why the controller could not
	// allocate; empty otherwise.
	Failed string
}

// Ref names c.
func (c Claim) Ref() ClaimRef { return ClaimRef{Namespace: c.Namespace, Name: c.Name, UID: c.UID} }

// UseEvidence is what an agent has read live, after its use was created, to decide whether the use
// is usable.
type UseEvidence struct {
	Own Use
	// Addrs are the addresses that the use is to be answered with, as the claim's
	// status had them when it was begun.
	Addrs []netip.Addr
	// Other is the claim's other use; nil if that name does not exist.
	Other *SubLease
	Claim Claim
	// Leases are the leases of the blocks that hold Addrs.
	Leases []Lease
	// Vanished says that the use was not there for a while, and has been made again.
	Vanished bool
}

// A UseAnswer is what [ConfirmUse] decides.
type UseAnswer struct {
	// Outcome is Done, Refused or Unknown. Refused means that the use must go. Unknown means that
	// it waits until the node's other use of the claim has gone (see [UseEvidence.Earlier]).
	Outcome Outcome
	// Passes says that the reason for a refusal may pass by itself.
	Passes bool
	// Why is a sentence for people, unless Outcome is Done.
	Why string
}

// ConfirmUse decides whether a use is usable. Every address of the claim's status must be granted
// to the claim's UID, on the lease of its block, and not be marked freeing. e.Addrs must be among
// them.
func ConfirmUse(self Self, e UseEvidence) UseAnswer {
	answer := func(o Outcome, passes bool, format string, args ...any) UseAnswer {
		return UseAnswer{Outcome: o, Passes: passes, Why: fmt.Sprintf("claim %v", e.Own.Claim) + fmt.Sprintf(format, args...)}
	}
	switch o := e.other(); {
	case e.Claim.UID != e.Own.Claim.UID: // there may be another of its name
		return answer(Refused, true, " was deleted")
	case e.Claim.Deleting:
		return answer(Refused, false, " is being deleted")
	case o != nil && o.Node != self.Node && !siblings(e.Own.Pod, o.Use.Pod, e.Claim):
		return answer(Refused, false, " is in use by pod %s on node %s, which is not the same workload%s", o.Use.Pod, o.Node, e.Own.Pod.Standoff(o.Use.Pod))
	case len(e.Claim.IPs) == 0 && len(e.Addrs) == 0: // it shows the controller where the claim is wanted
		return answer(Unknown, true, " has no addresses yet")
	case len(e.Claim.IPs) == 0:
		return answer(Refused, true, " has no addresses")
	}
	for _, ip := range e.Claim.IPs {
		g, ok := grantIn(e.Leases, ip.Addr(), e.Claim.UID)
		if !ok { // of one that it did not name before, the lease was not read
			return answer(Refused, len(e.Addrs) > 0 && !slices.Contains(e.Addrs, ip.Addr()), ": status names %v, which Tenure has not granted to it", ip)
		}
		if g.Freeing { // a mark goes again where the status names the address
			return answer(Refused, true, ": %v is being freed", ip)
		}
	}
	for _, a := range e.Addrs {
		if !slices.ContainsFunc(e.Claim.IPs, func(ip netip.Prefix) bool { return ip.Addr() == a }) {
			return answer(Refused, true, ": status named %v before, and does not any more", a)
		}
	}
	if o, ok := e.Earlier(self.Node); ok {
		whose := ""
		if o.Store != self.Store {
			whose = fmt.Sprintf(", which store %s has left", o.Store)
		}
		return answer(Unknown, true, ": node %s has not given back yet the use %s of pod %s%s", o.Node, o.Name, o.Use.Pod, whose)
	}
	return UseAnswer{Outcome: Done}
}

// other returns the claim's other use; nil if there is none.
func (e UseEvidence) other() *SubLease {
	if o := e.Other; o != nil && o.Use != nil && o.Use.Claim.UID == e.Own.Claim.UID {
		return o
	}
	return nil
}

// Earlier returns the claim's other use if it is of the same node. Its create may have come late,
// or it is being given back; it may be of a lost store of the machine, or of another machine that
// had the node's name. This store gives nothing by it.
func (e UseEvidence) Earlier(node NodeName) (s SubLease, ok bool) {
	if o := e.other(); o != nil && o.Node == node {
		return *o, true
	}
	return SubLease{}, false
}

// PickUse returns which of a node's one or two uses of a claim a pod is to have: preferably one
// that pods have already. The other is given back.
func PickUse(recorded []Right) Right {
	rank := func(r Right) int {
		switch r.Phase {
		case Held:
			return 0
		case Frozen, Lost:
			return 1
		case Noted, Releasing:
		}
		return 2
	}
	return slices.MinFunc(recorded, func(a, b Right) int { return rank(a) - rank(b) })
}

// Keeps reports whether a pod keeps the addresses that the use was answered with, although the use
// is not confirmed for another pod. It does while each of them is still granted to the claim: while
// the use is there, an address is not freed even if it is marked freeing. If the use had vanished,
// no address may be marked, for the mark may be older than the use, and no pod of another workload
// may use the claim.
func (e UseEvidence) Keeps() bool {
	for _, a := range e.Addrs {
		if g, ok := grantIn(e.Leases, a, e.Own.Claim.UID); !ok || e.Vanished && g.Freeing {
			return false
		}
	}
	return len(e.Addrs) > 0 && !(e.Vanished && e.otherWorkload())
}

// otherWorkload reports whether the claim's other use is of a pod that may not share it.
func (e UseEvidence) otherWorkload() bool {
	o := e.other()
	return o != nil && !siblings(e.Own.Pod, o.Use.Pod, e.Claim)
}

// grantIn returns the grant of a to the claim of that UID.
func grantIn(leases []Lease, a netip.Addr, uid UID) (Grant, bool) {
	for _, l := range leases {
		if !l.Block.Contains(a) || !l.Holder.Cluster && !slices.Contains(l.Ceded, a) {
			continue
		}
		if g, ok := l.GrantOf(a); ok && g.To.Is(Grantee{Kind: GranteeClaim, UID: uid}) {
			return g, true
		}
	}
	return Grant{}, false
}

// siblings reports whether two pods on two nodes may use claim c at once, being
// one workload on the move: the same pod name under one StatefulSet, or under the owner
// for which the claim was made by that name, or two pods of the VirtualMachineInstance
// that the claim belongs to. Two replicas are never siblings.
func siblings(a, b PodRef, c Claim) bool {
	if a.Namespace != b.Namespace || a.Owner.UID == "" || a.Owner.UID != b.Owner.UID {
		return false
	}
	if c.ByName != "" {
		return a.Name == b.Name
	}
	switch a.Owner.Kind {
	case "StatefulSet":
		return a.Name == b.Name
	case "VirtualMachineInstance":
		return ownsVMI(a.Owner, c)
	default:
		return false
	}
}

// ownsVMI reports whether c belongs to the virtual machine of instance vmi: the
// two have one name.
func ownsVMI(vmi OwnerRef, c Claim) bool {
	switch c.Owner.Kind {
	case "VirtualMachine":
		return c.Owner.Name == vmi.Name
	case "VirtualMachineInstance":
		return c.Owner.UID == vmi.UID
	default:
		return c.VM != "" && c.VM == vmi.Name
	}
}

// BelongsTo reports whether pod may use claim c at all: the claim has no owner, or
// the pod is of its owner. Owners of a kind that Tenure does not know are not
// held against the pod. A claim of a StatefulSet is for that set's pods, whether it has an
// owner or not, and one that was made by a pod's name for pods of that pod's owner. why is a
// sentence for a person.
func BelongsTo(pod PodRef, c Claim) (ok bool, why string) {
	if c.StatefulSet != "" && (pod.Owner.Kind != "StatefulSet" || pod.Owner.Name != c.StatefulSet) {
		return false, fmt.Sprintf("claim %s/%s is for the pods of StatefulSet %s, which does not own pod %s", c.Namespace, c.Name, c.StatefulSet, pod)
	}
	if c.ByName != "" && pod.Owner.UID != c.ByName {
		owner := "an owner with the UID " + string(c.ByName)
		if c.Owner.UID == c.ByName {
			owner = c.Owner.Kind + " " + c.Owner.Name
		}
		return false, fmt.Sprintf("claim %s/%s is for the pods of %s, which does not own pod %s", c.Namespace, c.Name, owner, pod)
	}
	switch {
	case c.Owner.UID == "", pod.Owner.UID == c.Owner.UID, pod.UID == c.Owner.UID:
		return true, ""
	case c.Owner.Kind == "VirtualMachine" && pod.Owner.Kind == "VirtualMachineInstance" && ownsVMI(pod.Owner, c):
		return true, ""
	case c.Owner.Kind == "Deployment" && pod.Owner.Kind == "ReplicaSet":
		// A ReplicaSet is named by its Deployment and a hash without a dash.
		if deployment, _, ok := cutLast(pod.Owner.Name, "-"); ok && deployment == c.Owner.Name {
			return true, ""
		}
	}
	switch c.Owner.Kind {
	case "Pod", "StatefulSet", "ReplicaSet", "Deployment", "DaemonSet", "Job", "VirtualMachine", "VirtualMachineInstance":
		return false, fmt.Sprintf("claim %s/%s belongs to %s %s, which does not own pod %s", c.Namespace, c.Name, c.Owner.Kind, c.Owner.Name, pod)
	}
	return true, ""
}
