// Package foreign keeps the addresses that pods have by other IPAMs from being given to
// others: while a cluster moves to Tenure, beside another IPAM, and on the way out.
//
//	fence ---> look ---> keep ---> open
//	  |          |         |
//	  |          |         a grant to the pod, on the block's lease (package grants)
//	  |          pods' status, whereabouts' records, reports of the nodes' agents
//	  whereabouts gives nothing new of the addresses (policy foreign-fence.tenure.dev)
//
// Before a pool is opened, and before addresses that an edit has added are given, the
// controller finds out what of them pods have: package controller/looker reads and asks,
// and this package decides. [Find], [Candidates], [Pending] and [Ended] are pure functions of what
// was read. The [Verdict] on each pool says whether the pool may be opened, and what is in
// the way; package pools follows it.
//
// [ReadDefinition], [WhereaboutsPool] and [WhereaboutsReservation] read what other IPAMs say.
package foreign
