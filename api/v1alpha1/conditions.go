package v1alpha1

// LeasesFinalizer keeps a deleted pool until no lease of its name is left.
const LeasesFinalizer = "tenure.dev/leases"

// Types of an IPPool's conditions.
const (
	// PoolReady says whether the pool hands out addresses.
	PoolReady = "Ready"
	// PoolExhausted says whether every address of the pool is taken or out of
	// reach.
	PoolExhausted = "Exhausted"
	// PoolOverlapping says whether the pool shares addresses with another pool of its domain, or
	// with one that may be of its network.
	PoolOverlapping = "Overlapping"
	// PoolForeignIPAM says that definitions of the pool's segment name another IPAM,
	// which may give addresses of the pool. It is there only while it is True.
	PoolForeignIPAM = "ForeignIPAM"
	// PoolForeignAddresses says how many addresses belong to pods of another IPAM. It is
	// there only while it is True.
	PoolForeignAddresses = "ForeignAddresses"
	// PoolTwoOwners names addresses that a pod of another IPAM has and somebody else of
	// the pool, too, or a claim and a port of Neutron's that is not its own, or a router and
	// somebody of the pool. It is there only while it is True.
	PoolTwoOwners = "TwoOwners"
	// PoolWithheld says why some addresses, as those that an edit has added, are not given yet,
	// or none of a pool that was stopped. It is there only while it is True.
	PoolWithheld = "Withheld"
	// PoolSourceReady says, of a pool with a source, whether that gives addresses, and the
	// pool has the ranges that the source has. The controller alone that talks to it says so.
	PoolSourceReady = "SourceReady"
	// PoolStrangers says which addresses of a pool with spec.detectConflicts are kept from pods,
	// since strangers have them. It is there only while it is True.
	PoolStrangers = "Strangers"
	// PoolPinsTaken says, of a pool with spec.perNode, which subnets are pinned to a node and
	// leased by another, or by the cluster. It is there only while it is True.
	PoolPinsTaken = "PinsTaken"
	// PoolAdvertised says, of a pool with spec.advertise, whether Nodes publish what it has.
	PoolAdvertised = "Advertised"
)

// Reasons of the condition Strangers.
const (
	ReasonAddressesKept = "AddressesKept"
	// ReasonTooManyStrangers: no further address is kept, and none is asked for.
	ReasonTooManyStrangers = "TooManyStrangers"
)

// Reasons of the condition Withheld.
const (
	// ReasonNotLookedAt: pods of another IPAM may have some of the addresses that an edit has
	// added.
	ReasonNotLookedAt = "NotLookedAt"
	// ReasonGivenAway: the pool was stopped, and is not open again. Another IPAM may have given any
	// of its addresses since.
	ReasonGivenAway = "GivenAway"
)

// LabelStranger is the label of an IPReservation that the controller has made of a stranger's
// address. Its value is the stranger's hardware address, with dashes.
const LabelStranger = "tenure.dev/stranger"

// AnnotationDomain is the annotation of a network attachment definition that names the L2 segment
// of its network: a pool with another spec.domain does not share it.
const AnnotationDomain = "tenure.dev/domain"

// LabelImplicit is the label of an implicit pool, with the value "true": the pool's ranges are what
// definitions describe. A person who wants to look after such a pool removes it.
const LabelImplicit = "tenure.dev/implicit"

// AnnotationDefinitions names the definitions of an implicit pool, oldest first, as
// "namespace/name,namespace/name".
const AnnotationDefinitions = "tenure.dev/definitions"

// AnnotationTrustStatus is the annotation of a pool by which a person says, with "true", that the
// status of pods shows all that they have by another IPAM. Without it the pool waits where a
// node's agent cannot read that IPAM's files.
const AnnotationTrustStatus = "tenure.dev/trust-status"

// AnnotationStoppedByExport is the annotation by which an export marks a pool that it has stopped.
// An import starts no other pool.
const AnnotationStoppedByExport = "tenure.dev/stopped-by-export"

// Reasons of the condition Ready.
const (
	// ReasonOpen (True): blocks of the pool may be leased.
	ReasonOpen = "Open"
	// ReasonInvalidSpec (False): the message lists every fault of the spec.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonBlockSizeChanging (False): the block size is about to change, or leases with
	// an earlier one are being given back; the pool opens when the last one is.
	ReasonBlockSizeChanging = "BlockSizeChanging"
	// ReasonEarlierPool (False): leases of a deleted pool of the same name are
	// being given back; the pool opens when the last one is.
	ReasonEarlierPool = "EarlierPool"
	// ReasonRestored (False): the API server's data went back in time; the pool
	// waits until the agents have put their leases back.
	ReasonRestored = "Restored"
	// ReasonOverlap (False): the pool shares addresses with another pool of its
	// domain and has not been opened.
	ReasonOverlap = "Overlap"
	// ReasonLeaseGarbled (False): a lease that may be of the pool's domain cannot be
	// read; the message names it.
	ReasonLeaseGarbled = "LeaseGarbled"
	// ReasonForeignIPAM (False): the pool has not been opened yet, or not since it was stopped, and
	// another IPAM may still give its addresses; see the condition ForeignIPAM.
	ReasonForeignIPAM = "ForeignIPAM"
	// ReasonForeignLook (False): the pool has not been opened yet, and it is being found
	// out which of its addresses pods of another IPAM have.
	ReasonForeignLook = "ForeignLook"
	// ReasonStopped (False): spec.allocation is Stopped.
	ReasonStopped = "Stopped"
	// ReasonSourcePending (False): the pool has a source, whose ranges are not known yet; see
	// the condition SourceReady.
	ReasonSourcePending = "SourcePending"
	// ReasonDeleting (False): the pool was deleted and waits for its leases.
	ReasonDeleting = "Deleting"
)

// Reasons of the condition SourceReady. Beside these there are those of Neutron's refusals.
const (
	// ReasonFollowed (True): the pool has what its source has.
	ReasonFollowed = "Followed"
	// ReasonNotConfigured (False): the controller has not been told how to reach the source.
	ReasonNotConfigured = "NotConfigured"
	// ReasonSubnetNotFound (False): Neutron has no such subnet, or shows us none.
	ReasonSubnetNotFound = "SubnetNotFound"
	// ReasonSubnetUnfit (False): a subnet cannot be a part of the pool.
	ReasonSubnetUnfit = "SubnetUnfit"
)

// Reasons of the condition Advertised.
const (
	// ReasonPublished (True): Nodes publish how many addresses pods may ask for.
	ReasonPublished = "Published"
	// ReasonNotOpen (False): the pool gives no addresses; see the condition Ready.
	ReasonNotOpen = "NotOpen"
	// ReasonNotPermitted (False): the controller may not write what Nodes publish.
	ReasonNotPermitted = "NotPermitted"
)

// ReasonLeasedElsewhere is the reason of the condition PinsTaken: the message says who has leased
// each subnet.
const ReasonLeasedElsewhere = "LeasedElsewhere"

// Reasons of the condition TwoOwners.
const (
	// ReasonPortTaken (True): a port of Neutron's that is not the claim's has the address of
	// a claim.
	ReasonPortTaken = "PortTaken"
	// ReasonRouterTaken (True): a pod or a claim has the address of a router.
	ReasonRouterTaken = "RouterTaken"
)

// Reasons of the condition Exhausted.
const (
	// ReasonNoAddressFree (True): the message says how many addresses are out of
	// reach on nodes that do not answer.
	ReasonNoAddressFree = "NoAddressFree"
	// ReasonAddressesFree (False).
	ReasonAddressesFree = "AddressesFree"
)

// Reasons of the condition Overlapping.
const (
	// ReasonSharedAddresses (True): the message names the other pools.
	ReasonSharedAddresses = "SharedAddresses"
	// ReasonDisjoint (False).
	ReasonDisjoint = "Disjoint"
)

// Reasons for which a sub-lease's request is refused.
const (
	// RefusedInUse: the one address that was wanted is another's; the message
	// says whose.
	RefusedInUse = "InUse"
	// RefusedNotAssignable: the wanted addresses are not the pool's to give.
	RefusedNotAssignable = "NotAssignable"
	// RefusedPoolNotReady: the pool is closed, invalid, being deleted or absent.
	RefusedPoolNotReady = "PoolNotReady"
)
