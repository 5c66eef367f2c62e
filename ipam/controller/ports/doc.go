// Package ports stands between Tenure and a network service that administers addresses itself:
// OpenStack's Neutron. A pool with a source has its addresses from there.
//
//	subnets --[Follower]--> spec.ranges, routes, dns and condition SourceReady of the pool
//	claim --Ask--> [Ports] --> a port of Neutron's, whose addresses are then granted
//	claim gone, addresses freed --Release--> [Ports] --> the port is deleted
//
// The port comes before the grant: Neutron decides who has an address, and the grant records
// it. A port is the claim's by the claim's UID, so that a lost answer, another leader or a
// crash makes no second one. The port goes after the grant: until then a pod may use it.
//
// Nothing is kept of this but in Neutron, in the claim's annotation and in its grants. What was
// under way when a controller ended is found by the sweep, which compares Neutron's ports with
// the claims: a port without a claim goes, and one that a claim has lost is made again.
package ports
