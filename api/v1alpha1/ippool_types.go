package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// IPPool is the address ranges of one addressing domain: an L2 segment, a VLAN.
// The pool is the domain: in one pool, an address has at most one owner.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,path=ippools,singular=ippool,shortName=tpool,categories=tenure
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Used",type=integer,JSONPath=`.status.counts.used`
// +kubebuilder:printcolumn:name="Claimed",type=integer,JSONPath=`.status.counts.claimed`
// +kubebuilder:printcolumn:name="Free",type=string,JSONPath=`.status.counts.freeText`
// +kubebuilder:printcolumn:name="Capacity",type=string,JSONPath=`.status.counts.capacityText`
// +kubebuilder:printcolumn:name="Pressure",type=string,JSONPath=`.status.pressure`
// +kubebuilder:printcolumn:name="Unreachable",type=integer,JSONPath=`.status.counts.unreachable`,priority=1
// +kubebuilder:printcolumn:name="Leases",type=integer,JSONPath=`.status.counts.leases`,priority=1
// +kubebuilder:printcolumn:name="Foreign",type=integer,JSONPath=`.status.counts.foreign`,priority=1
// +kubebuilder:printcolumn:name="Reserved",type=integer,JSONPath=`.status.counts.reserved`,priority=1
// +kubebuilder:printcolumn:name="Domain",type=string,JSONPath=`.spec.domain`,priority=1
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')",message="metadata.name must be at most 63 lower-case letters, digits and '-', without dots: leases are named after the pool"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || has(self.status)",message="status must not be removed",fieldPath=".status"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.spec.domain) || (has(self.spec.domain) && self.spec.domain == oldSelf.spec.domain) || !has(oldSelf.status) || !has(oldSelf.status.opening) && !has(oldSelf.status.waited)",message="must not change, or go, once the pool has been opened, or has waited after a restore: its addresses may be in use where it says that they are; make another pool instead",fieldPath=".spec.domain"
type IPPool struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the object's metadata. A name has at most 63 characters and no
	// dots, because leases are named <pool>.<block>.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the pool's addresses are and how they may be handed out.
	// +required
	Spec IPPoolSpec `json:"spec"`

	// status is what the controller made of the spec, and how full the pool is.
	// +optional
	Status IPPoolStatus `json:"status,omitzero"`
}

// IPPoolList is a list of pools.
//
// +kubebuilder:object:root=true
type IPPoolList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the list's metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the pools.
	Items []IPPool `json:"items"`
}

// IPPoolSpec is what a user asks of a pool.
//
// +kubebuilder:validation:XValidation:rule="has(self.ranges) || has(self.source)",message="is missing: write at least one range with a cidr, or a source",fieldPath=".ranges"
// +kubebuilder:validation:XValidation:rule="has(self.perNode) == has(oldSelf.perNode)",message="must not be added to a pool, nor removed: make another pool",fieldPath=".perNode"
// +kubebuilder:validation:XValidation:rule="!has(self.perNode) || !has(self.blockSize) && !has(self.source)",message="stands beside a blockSize or a source: a node's subnet says what it leases; leave them out",fieldPath=".perNode"
// +kubebuilder:validation:XValidation:rule="!has(self.perNode) || !has(self.ranges) || self.ranges.all(r, !has(r.start) && !has(r.end) && !has(r.gateway) && !has(r.nodeSelector))",message="stands beside a range with a start, an end, a gateway or a nodeSelector: write the cidr alone, and exclude what must not be given",fieldPath=".perNode"
// +kubebuilder:validation:XValidation:rule="has(self.source) == has(oldSelf.source)",message="must not be added to a pool, nor removed: make another pool",fieldPath=".source"
// +kubebuilder:validation:XValidation:rule="!has(self.advertise) || !self.advertise || !has(self.source) && !has(self.perNode)",message="must not be true beside a source, which alone knows what is free, nor beside perNode, where a node's subnet says it",fieldPath=".advertise"
// +kubebuilder:validation:XValidation:rule="!has(self.detectConflicts) || !self.detectConflicts || !has(self.source) && !has(self.perNode)",message="must not be true beside a source, which says itself what it has given, nor beside perNode, where nobody else can keep an address",fieldPath=".detectConflicts"
type IPPoolSpec struct {
	// ranges are the pool's addresses. Two ranges may lie in one CIDR where their
	// start and end keep them apart. One address of each family that the ranges
	// have is given to an interface. Where the pool has a source, the controller writes
	// them, and whatever else stands here goes.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(a, !isCIDR(a.cidr) || self.all(b, !isCIDR(b.cidr) || cidr(a.cidr) == cidr(b.cidr) || !cidr(a.cidr).containsCIDR(b.cidr)))",message="has a cidr that lies within another: write one range, or two pools if they are two networks"
	Ranges []Range `json:"ranges,omitempty"`

	// source is what administers the addresses outside the cluster. A pool has it from its
	// beginning, or never.
	// +optional
	Source *PoolSource `json:"source,omitempty"`

	// blockSize is how many addresses a node leases at once, in each family: a
	// power of two. Left out, it is a 256th of the widest range, or of what may be
	// handed out where that is less, and at most 64. Large blocks mean fewer calls to
	// the API server; small ones let more nodes hold one. A change takes effect when no
	// lease with the earlier size is left.
	// +optional
	// +kubebuilder:validation:Enum=1;2;4;8;16;32;64;128;256
	BlockSize *int32 `json:"blockSize,omitempty"`

	// perNode gives each node a subnet of the ranges for itself, as fabrics want that route to
	// nodes. The ranges have neither start nor end, nor a gateway, nor a nodeSelector, and are of
	// one family. A pool has it from its beginning, or never. Its addresses stay on their node:
	// claims have none of it.
	// +optional
	PerNode *PerNode `json:"perNode,omitempty"`

	// routes are given to every interface with an address of the pool, after those of
	// the network's own configuration, which decides where both have a destination.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Routes []Route `json:"routes,omitempty"`

	// dns is given to every interface with an address of the pool whose network
	// configuration has none.
	// +optional
	DNS *DNS `json:"dns,omitempty"`

	// domain names the L2 segment that the pool's addresses live in. Pools of one
	// domain must not share addresses: one that would is not opened. Pools that name
	// no domain count as one segment, too: name one in each where two VLANs have the
	// same addresses. A pool that has been opened keeps the domain that it names.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Domain string `json:"domain,omitempty"`

	// reuseAfter is for how long an address that was freed rests: while others are free it
	// is not given to another pod or claim, unless that asks for it by name. At most 24h.
	// Left out, or 0s, the address that was freed longest ago comes first, however lately
	// that was.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}(ms|s|m|h)){1,4}$') && duration(self) <= duration('24h')",message="is no time of at most 24h: write for example 10m, 90s or 1h30m"
	ReuseAfter string `json:"reuseAfter,omitempty"`

	// takeOver says whose word that a node is off is enough to give the node's
	// addresses to others.
	// +optional
	// +kubebuilder:default=Automatic
	TakeOver TakeOver `json:"takeOver,omitempty"`

	// namespaceSelector selects, by their labels, the namespaces whose pods and claims
	// may have addresses of the pool. Left out, those of every namespace may. A change
	// takes nothing away from who has an address already.
	// +optional
	NamespaceSelector *LabelSelector `json:"namespaceSelector,omitempty"`

	// access says who of the namespaces selected may use the pool: everyone, or those
	// whose group system:serviceaccounts:<namespace> RBAC allows the verb use on it.
	// +optional
	// +kubebuilder:default=Everyone
	Access Access `json:"access,omitempty"`

	// shareWith are network attachment definitions, as namespace/name, and other pools,
	// of which the administrator says that none of this pool's addresses are given by
	// them, although their ranges overlap: the parts are disjoint, or the networks are
	// two. Without that word the pool is not opened, nor given more addresses, beside
	// such a definition or pool.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=317
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[^/]+(/[^/]+)?$')",message="is no name: write namespace/name of a definition, or a pool's name"
	ShareWith []string `json:"shareWith,omitempty"`

	// allocation says whether the pool gives addresses. Stopped, its nodes give back
	// what is free, and a pod keeps the address that it has, also with a new sandbox. No
	// other pod gets one, not even of a claim, which keeps its addresses: another IPAM
	// may have given them since. Stopped is for moving to another IPAM.
	// +optional
	// +kubebuilder:default=Automatic
	Allocation Allocation `json:"allocation,omitempty"`

	// advertise has each Node publish how many addresses of the pool its pods may ask for, as
	// the extended resource tenure.dev/<pool>. Pods that ask for it are scheduled where an
	// address can be had, and quotas count it.
	// +optional
	Advertise bool `json:"advertise,omitempty"`

	// detectConflicts has tenure-attach ask on the segment for an address that a node gives for
	// the first time. One that a stranger has, such as a printer, is given to no pod: it is kept
	// by an IPReservation, which is deleted to end that. Addresses of claims are not asked for.
	// +optional
	DetectConflicts bool `json:"detectConflicts,omitempty"`
}

// Allocation says whether a pool gives addresses.
//
// +kubebuilder:validation:Enum=Automatic;Stopped
type Allocation string

// The ways of allocation.
const (
	// AllocationAutomatic: whoever may use the pool gets addresses.
	AllocationAutomatic Allocation = "Automatic"
	// AllocationStopped: no pod gets an address that it does not have.
	AllocationStopped Allocation = "Stopped"
)

// TakeOver says when the leases of a dead node go to the cluster.
//
// +kubebuilder:validation:Enum=Automatic;Confirmed
type TakeOver string

// The ways of taking over.
const (
	// TakeOverAutomatic: by the out-of-service taint, or when the Node object is
	// gone and its agent has been silent for the fence time.
	TakeOverAutomatic TakeOver = "Automatic"
	// TakeOverConfirmed: by the out-of-service taint alone.
	TakeOverConfirmed TakeOver = "Confirmed"
)

// Range is one CIDR of a pool, or a part of one.
//
// +kubebuilder:validation:XValidation:rule="!has(self.start) || !isIP(self.start) || !isCIDR(self.cidr) || cidr(self.cidr).containsIP(self.start)",message="lies outside cidr: write an address of cidr, or leave it out",messageExpression="'lies outside cidr: write an address of ' + self.cidr + ', or leave it out'",fieldPath=".start"
// +kubebuilder:validation:XValidation:rule="!has(self.end) || !isIP(self.end) || !isCIDR(self.cidr) || cidr(self.cidr).containsIP(self.end)",message="lies outside cidr: write an address of cidr, or leave it out",messageExpression="'lies outside cidr: write an address of ' + self.cidr + ', or leave it out'",fieldPath=".end"
// +kubebuilder:validation:XValidation:rule="!has(self.gateway) || !isIP(self.gateway) || !isCIDR(self.cidr) || ip(self.gateway).family() == cidr(self.cidr).ip().family()",message="is not of cidr's IP family: write an address of that family, or leave it out",fieldPath=".gateway"
// +kubebuilder:validation:XValidation:rule="!has(self.exclude) || !isCIDR(self.cidr) || self.exclude.all(e, e.split('-', 2).exists(a, isIP(a) ? cidr(self.cidr).containsIP(a) : !isCIDR(a) || cidr(self.cidr).containsCIDR(a) || cidr(a).containsCIDR(self.cidr)))",message="has an element outside cidr: remove it, or move it to the range that it belongs to",messageExpression="'has an element outside ' + self.cidr + ': remove it, or move it to the range that it belongs to'",fieldPath=".exclude"
// +kubebuilder:validation:XValidation:rule="!has(self.staticOnly) || !isCIDR(self.cidr) || self.staticOnly.all(e, e.split('-', 2).exists(a, isIP(a) ? cidr(self.cidr).containsIP(a) : !isCIDR(a) || cidr(self.cidr).containsCIDR(a) || cidr(a).containsCIDR(self.cidr)))",message="has an element outside cidr: remove it, or move it to the range that it belongs to",messageExpression="'has an element outside ' + self.cidr + ': remove it, or move it to the range that it belongs to'",fieldPath=".staticOnly"
// +kubebuilder:validation:XValidation:rule="!has(self.start) || !has(self.end) || [self.start, self.end].filter(a, isIP(a) && ip(a).family() == 4).map(a, a.split('.', 4).map(o, int(o))).map(o, o[0] * 16777216 + o[1] * 65536 + o[2] * 256 + o[3]).isSorted()",message="comes before start: write the lower address as start and the higher one as end",fieldPath=".end"
type Range struct {
	// cidr is the subnet, without host bits. Its length is that of the addresses
	// given out of the range. Network address, broadcast address (IPv4, /30 and
	// shorter) and subnet-router anycast address (IPv6) are never given out.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="is not a CIDR: write address/length, for example 10.0.0.0/16 or fd00::/64"
	// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || cidr(self) == cidr(self).masked()",message="has host bits set: write the subnet's own address, 10.0.0.0/24 instead of 10.0.0.7/24"
	CIDR string `json:"cidr"`

	// start is the first address of cidr that belongs to the pool. Left out, it
	// is the first of cidr.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=39
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="is not an IP address: write one such as 10.0.0.5 or fd00::5"
	Start string `json:"start,omitempty"`

	// end is the last address of cidr that belongs to the pool. Left out, it is
	// the last of cidr.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=39
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="is not an IP address: write one such as 10.0.0.5 or fd00::5"
	End string `json:"end,omitempty"`

	// exclude are addresses of cidr that are never given out: each an address, a
	// CIDR, or "first-last".
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=79
	// +kubebuilder:validation:items:XValidation:rule="isIP(self) || isCIDR(self) || (self.contains('-') && self.split('-', 2).all(a, isIP(a) && ip(a).family() == (self.contains(':') ? 6 : 4)))",message="is none of an address, a CIDR and first-last of one family: write for example 10.0.0.5, 10.0.0.64/26 or 10.0.0.10-10.0.0.19"
	// +kubebuilder:validation:items:XValidation:rule="!isCIDR(self) || cidr(self) == cidr(self).masked()",message="has host bits set: write the subnet's own address, 10.0.0.0/24 instead of 10.0.0.7/24"
	// +kubebuilder:validation:items:XValidation:rule="self.split('-', 2).filter(a, isIP(a) && ip(a).family() == 4).map(a, a.split('.', 4).map(o, int(o))).map(o, o[0] * 16777216 + o[1] * 65536 + o[2] * 256 + o[3]).isSorted()",message="ends before it starts: write first-last with the lower address first"
	Exclude []string `json:"exclude,omitempty"`

	// staticOnly are addresses of cidr that are given only to those who ask for
	// them by name: each an address, a CIDR, or "first-last".
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=79
	// +kubebuilder:validation:items:XValidation:rule="isIP(self) || isCIDR(self) || (self.contains('-') && self.split('-', 2).all(a, isIP(a) && ip(a).family() == (self.contains(':') ? 6 : 4)))",message="is none of an address, a CIDR and first-last of one family: write for example 10.0.0.5, 10.0.0.64/26 or 10.0.0.10-10.0.0.19"
	// +kubebuilder:validation:items:XValidation:rule="!isCIDR(self) || cidr(self) == cidr(self).masked()",message="has host bits set: write the subnet's own address, 10.0.0.0/24 instead of 10.0.0.7/24"
	// +kubebuilder:validation:items:XValidation:rule="self.split('-', 2).filter(a, isIP(a) && ip(a).family() == 4).map(a, a.split('.', 4).map(o, int(o))).map(o, o[0] * 16777216 + o[1] * 65536 + o[2] * 256 + o[3]).isSorted()",message="ends before it starts: write first-last with the lower address first"
	StaticOnly []string `json:"staticOnly,omitempty"`

	// gateway is the subnet's router. It is never given out, and is told to every
	// interface with an address of the range. It may lie outside cidr, as fe80::1 or
	// 169.254.1.1 do: then routes lead through it where the network's cniVersion is 1.1.0
	// or later; through an IPv6 address of the link, fe80::/10, with every version.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=39
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="is not an IP address: write one such as 10.0.0.5 or fd00::5"
	Gateway string `json:"gateway,omitempty"`

	// nodeSelector selects, by their labels, the nodes whose pods are given addresses of the
	// range, as where each rack has a subnet of its own. Left out, those of every node are. A
	// change takes nothing away from who has an address already.
	// +optional
	NodeSelector *LabelSelector `json:"nodeSelector,omitempty"`
}

// Route is a route that comes with an address.
//
// +kubebuilder:validation:XValidation:rule="!has(self.gw) || !isIP(self.gw) || !isCIDR(self.dst) || ip(self.gw).family() == cidr(self.dst).ip().family()",message="is not of dst's IP family: write a next hop of the same family, or leave it out",fieldPath=".gw"
type Route struct {
	// dst is the destination, as a CIDR without host bits.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="is not a CIDR: write address/length, for example 10.0.0.0/16 or fd00::/64"
	// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || cidr(self) == cidr(self).masked()",message="has host bits set: write the subnet's own address, 10.0.0.0/24 instead of 10.0.0.7/24"
	Dst string `json:"dst"`

	// gw is the next hop. Left out, it is the gateway of the range that the
	// interface's address comes from.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=39
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="is not an IP address: write one such as 10.0.0.5 or fd00::5"
	GW string `json:"gw,omitempty"`
}

// DNS is the resolver configuration that comes with an address, with the keys
// of a CNI result.
//
// +kubebuilder:validation:MinProperties=1
type DNS struct {
	// nameservers are addresses of DNS servers, in order of preference.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=39
	// +kubebuilder:validation:items:XValidation:rule="isIP(self)",message="is not an IP address: write one such as 10.0.0.53 or fd00::53"
	Nameservers []string `json:"nameservers,omitempty"`

	// domain is the local domain.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Domain string `json:"domain,omitempty"`

	// search are the domains in which short names are looked up, in order.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Search []string `json:"search,omitempty"`

	// options are the resolver's options, as in resolv.conf.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Options []string `json:"options,omitempty"`
}
