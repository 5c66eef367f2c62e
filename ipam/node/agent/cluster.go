package agent

import (
	"context"
	"time"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/access"
	"github.com/tenure-ipam/tenure/ipam/node/leasestatus"
	"github.com/tenure-ipam/tenure/ipam/node/sightings"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Cluster is what the agent needs of the cluster. Every read of Leases,
// SubLeases, Registrations and Claims is live, unless it says otherwise.
type Cluster struct {
	Leases        Leases
	SubLeases     SubLeases
	Registrations Registrations
	Claims        Claims
	Pools         Pools
	Pods          Pods
	Events        Events
	// ResourceClaims reads ResourceClaims; nil where nobody serves their devices.
	ResourceClaims ResourceClaims
	// Access says who may use pools; it asks the API server only where nobody has told
	// it lately.
	Access access.Facts
	// Trouble says, for people, what is wrong with the API server at this moment; ""
	// if nothing is. Nil: nobody knows.
	Trouble func() string
}

// Leases are the calls on leases. An outcome of Unknown means that a write may
// still happen; err says why, for people. All methods may run at once.
type Leases interface {
	leasestatus.Leases
	CreateLease(ctx context.Context, l protocol.Lease) (protocol.Lease, protocol.Outcome, error)
	ReadLease(ctx context.Context, name string) (protocol.Lease, protocol.Outcome, error)
	UpdateLease(ctx context.Context, old, next protocol.Lease) (protocol.Lease, protocol.Outcome, error)
	DeleteLease(ctx context.Context, m protocol.Meta) (protocol.Outcome, error)
	// NodeLeases lists the leases that a node holds, and returns the revision of the
	// API server's data that they are of.
	NodeLeases(ctx context.Context, node protocol.NodeName) ([]protocol.Lease, protocol.Revision, error)
}

// SubLeases are the calls on sub-leases.
type SubLeases interface {
	CreateSubLease(ctx context.Context, s protocol.SubLease) (protocol.SubLease, protocol.Outcome, error)
	ReadSubLease(ctx context.Context, name string) (protocol.SubLease, protocol.Outcome, error)
	UpdateSubLease(ctx context.Context, old, next protocol.SubLease) (protocol.SubLease, protocol.Outcome, error)
	DeleteSubLease(ctx context.Context, m protocol.Meta) (protocol.Outcome, error)
	// NodeSubLeases lists a node's sub-leases, and returns the revision of the data.
	NodeSubLeases(ctx context.Context, node protocol.NodeName) ([]protocol.SubLease, protocol.Revision, error)
	// FollowSubLease calls changed with the sub-lease of that name as it is, unless
	// that is what it was at revision since ("" is none), and
	// again whenever it has changed, until ctx ends; exists is false while there is
	// none. changed is not called concurrently for one FollowSubLease.
	FollowSubLease(ctx context.Context, name string, since protocol.Revision, changed func(s protocol.SubLease, exists bool)) error
}

// Registrations are the calls on the node's registration.
type Registrations interface {
	ReadRegistration(ctx context.Context, node protocol.NodeName) (protocol.Registration, protocol.Outcome, error)
	CreateRegistration(ctx context.Context, s protocol.Registration) (protocol.Registration, protocol.Outcome, error)
	UpdateRegistration(ctx context.Context, s protocol.Registration) (protocol.Registration, protocol.Outcome, error)
	ReadNode(ctx context.Context, name protocol.NodeName) (protocol.Node, protocol.Outcome, error)
	// FollowRegistration calls changed with the node's registration as it is, and again whenever it
	// has changed, until ctx ends. It does not call it concurrently.
	FollowRegistration(ctx context.Context, node protocol.NodeName, changed func(protocol.Registration)) error
}

// Claims reads claims.
type Claims interface {
	ReadClaim(ctx context.Context, namespace, name string) (protocol.Claim, protocol.Outcome, error)
}

// ResourceClaims reads ResourceClaims live.
type ResourceClaims interface {
	// ReadDevices returns what a ResourceClaim has. Of devices it names those of a node alone.
	ReadDevices(ctx context.Context, node protocol.NodeName, namespace, name string) (protocol.ClaimedDevices, protocol.Outcome, error)
}

// Pools reads and follows pools by name.
type Pools interface {
	ReadPool(ctx context.Context, name protocol.PoolName) (protocol.Pool, protocol.Outcome, error)
	// DomainPools lists the pools of the default domain, the oldest first. It may be a moment
	// behind.
	DomainPools(ctx context.Context) ([]poolspec.DomainPool, error)
	// Follow calls changed with the pool as it is, and again whenever it has
	// changed, until ctx ends; exists is false while there is none. changed is
	// not called concurrently for one Follow.
	Follow(ctx context.Context, name protocol.PoolName, changed func(p Pool, exists bool)) error
}

// A Pool is what the agent knows of an IPPool. Its JSON form is kept in the
// store, so that a restart finds it while the API server is away.
type Pool struct {
	protocol.Pool
	Text     poolspec.PoolText  `json:"text"`
	Domain   string             `json:"domain,omitempty"`
	Routes   []poolspec.Route   `json:"routes,omitempty"`
	DNS      poolspec.DNS       `json:"dns,omitzero"`
	Access   access.Rule        `json:"access,omitzero"`
	Pressure allocator.Pressure `json:"pressure"`
	// Parts say how scarce the addresses of the ranges with each node selector are, where there
	// are some.
	Parts []PoolPart `json:"parts,omitempty"`
	// Labels are the labels of this node by which its part of the pool is told.
	Labels poolspec.NodeLabels `json:"labels,omitempty"`
	// Exhausted says, in the words of the pool's condition, that it has no address
	// left; empty while it has.
	Exhausted string `json:"exhausted,omitempty"`
	// DetectConflicts says that strangers are asked for an address before a pod has it.
	DetectConflicts bool `json:"detectConflicts,omitempty"`
	// Stopped says that the pool gives no addresses: its spec.allocation is Stopped.
	Stopped bool `json:"stopped,omitempty"`
	// GivenAway says that the pool was stopped, and is not open again: another IPAM may have given
	// what is free.
	GivenAway bool `json:"givenAway,omitempty"`
	// Sourced says that the pool has a source, by which claims alone have its addresses.
	Sourced bool `json:"sourced,omitempty"`
	// Foreign says that addresses of the pool are kept for pods to which another IPAM has
	// given them.
	Foreign bool `json:"foreign,omitempty"`
	// ReuseAfter is how long a freed address rests: it is not given to another while others are
	// free.
	ReuseAfter time.Duration `json:"reuseAfter,omitempty"`
	// Waits says, in the words of its condition, why the pool is not open; empty where
	// it is, or nothing was said.
	Waits string `json:"waits,omitempty"`
}

// A PoolPart says how scarce the addresses of a pool's ranges with one node selector are.
type PoolPart struct {
	Selector string             `json:"selector"` // as text; of the ranges for all nodes it is empty
	Pressure allocator.Pressure `json:"pressure"`
	// Exhausted says, for people, that they have no address left; empty while they have.
	Exhausted string `json:"exhausted,omitempty"`
}

// A Pod is what the agent knows of a pod.
type Pod struct {
	protocol.PodRef
	// Networks is the pod's selection annotation, Status the annotation in which a
	// meta-plugin says what was attached.
	Networks, Status string
	// Claims is the annotation that asks for claims, Set the name of the apps/v1 StatefulSet that
	// controls the pod; empty if none does.
	Claims, Set string
	// ClaimsBy is the annotation that asks for claims by the pod's name, and Nameless why it can
	// have none by it; empty: it can.
	ClaimsBy, Nameless string
	// MirrorOf is, of a static pod's mirror, the UID by which the runtime knows
	// the pod.
	MirrorOf protocol.UID
	// ResourceClaims are the names of the pod's ResourceClaims. Only [Pods.PodsOfNode] tells them.
	ResourceClaims []string
}

// Is reports whether uid, as the runtime told it, is p's. An empty uid is
// anybody's.
func (p Pod) Is(uid protocol.UID) bool { return uid == "" || uid == p.UID || uid == p.MirrorOf }

// Pods finds pods of this node.
type Pods interface {
	// Pod returns a pod, from a watch if that has it with this uid, else live.
	Pod(ctx context.Context, namespace, name string, uid protocol.UID) (Pod, protocol.Outcome, error)
	// ReadPod returns a pod live.
	ReadPod(ctx context.Context, namespace, name string) (Pod, protocol.Outcome, error)
	// PodsOfNode lists the pods of a node live, those without a network namespace of
	// their own left out: no interface is ever attached to these.
	PodsOfNode(ctx context.Context, node protocol.NodeName) ([]Pod, error)
}

// Events tells people what the node cannot set right by itself.
type Events interface {
	// WarnNode says something of the node, whose Node object has that UID. It neither
	// waits for the API server nor fails: what is said may be lost, and repetitions may
	// be counted as one.
	WarnNode(node protocol.NodeName, uid protocol.UID, reason, message string)
	// WarnPod says something of a pod of the node, likewise.
	WarnPod(pod protocol.PodRef, reason, message string)
}

// Host looks at what the host has of pods.
type Host interface {
	sightings.Host
	// Gone reports whether the network namespace of an attachment certainly does
	// not exist any more. What cannot be told is not gone.
	Gone(a store.Attachment) bool
	// Netns returns the network namespaces that pods may have now.
	Netns() ([]store.Netns, error)
}
