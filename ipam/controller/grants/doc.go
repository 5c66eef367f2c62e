// Package grants hands out the addresses that are the cluster's: those of blocks
// that the cluster holds, and those that nodes have ceded. It leases blocks for the
// cluster, writes grants on leases, takes grants back, gives idle blocks back to the
// pool, and asks nodes to cede where there is nothing else.
//
//	Ask ---> wait in order of arrival ---> round: plan  (Book, no I/O)
//	Mark, Clear, Drop ------------------>         create leases, read their pools live
//	                                              one update for each lease
//	                                              one update for each registration with recalls
//	                                              answer
//
// There is one round at a time, and no timer: what arrives while a round's calls
// are under way is the next round. So a hundred claims that come at once are two
// or three updates, and one claim that comes alone waits for nobody.
//
// The [Book] is what the broker knows of pools, leases and grants. It comes from watches, and may
// lag behind; every write is a compare-and-swap on UID and resourceVersion, so a plan made on old
// knowledge fails and is made again. What only a call has shown, and no watch, is read again after
// ten seconds. Whoever frees reads live first (docs/contributing/protocol.md, rule 2): the broker
// offers the two writes of freeing, [Broker.Mark] and [Broker.Clear], and its caller reads what
// stands between them, which counts only for the mark that was there before; [Broker.Drop] is one
// write, for a grantee that is gone or has its answer.
//
// An ask that finds nothing has holders recalled: each of up to eight is asked, on
// its node's registration, to cede what is free of one lease. The lease's status says when
// that is done. Who has nothing, or has not answered after two seconds, is passed
// over for the next ones and left alone for a while; with nobody left to ask the
// pool is exhausted for this ask, which waits on. Nobody is asked for the sake of a
// reserve, and for an address that is wanted by name only the node that has it.
package grants
