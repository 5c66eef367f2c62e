// Package grants hands out the addresses that are the cluster's: those of blocks
// that the cluster holds, and those that nodes have ceded. It leases blocks for the
// cluster, writes grants on leases, takes grants back, gives idle blocks back to the
// pool, and asks nodes to cede where there is nothing else.
//
//	Ask ---> wait in order of arrival ---> round: plan  (book, no I/O)
//	Mark, Clear, Drop ------------------>         create leases, read their pools live
//	                                              one update for each lease
//	                                              one update for each registration with recalls
//	                                              answer
//
// There is one round at a time, and no timer: what arrives while a round's calls
// are under way is the next round. So a hundred claims that come at once are two
// or three updates, and one claim that comes alone waits for nobody.
//
// The [book] is what the broker knows of pools, leases and grants. It comes from watches, and may
// lag behind. Every write is a compare-and-swap on UID and resourceVersion, so a plan made on old
// knowledge fails and is made again. A lease that only a call has shown, and no watch, is read
// again after ten seconds.
//
// To free grants of an existing grantee takes two writes (docs/contributing/protocol.md, rule 2):
// [Broker.Mark] and [Broker.Clear]. Between them the caller reads live whether a pod uses the
// addresses. [Broker.Drop] is one write, for a grantee that is gone or has its answer.
//
// For an ask that finds nothing, holders are asked to cede what is free: up to eight recalls are
// written on the registrations of their nodes, each for one lease. The lease's status says when the
// holder has answered. A holder that has nothing, or has not answered after two seconds, is not
// asked again for a while, and the next ones are. When no holder is left to ask, the pool is
// exhausted for this ask, which goes on waiting. For an address that is wanted by name only the
// node that has it is asked.
package grants
