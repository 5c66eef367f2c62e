// Package broker hands out the addresses of blocks that the cluster holds. It
// leases blocks for the cluster, writes grants on their leases, takes grants
// back, and gives idle blocks back to the pool.
//
//	Ask ---> wait in order of arrival ---> round: plan  (Book, no I/O)
//	Mark, Clear ------------------------>         create leases, read their pools live
//	                                              one update for each lease
//	                                              answer
//
// There is one round at a time, and no timer: what arrives while a round's calls
// are under way is the next round. So a hundred claims that come at once are two
// or three updates, and one claim that comes alone waits for nobody.
//
// The [Book] is what the broker knows of pools, leases and grants. It comes from
// watches, and may lag behind; every write is a compare-and-swap on UID and
// resourceVersion, so a plan made on old knowledge fails and is made again.
// Whoever frees reads live first (docs/leases.md, rule 2): the broker offers the
// two writes of freeing, [Broker.Mark] and [Broker.Clear], and its caller reads
// what stands between them.
package broker
