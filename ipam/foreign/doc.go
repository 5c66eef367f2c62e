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
// and this package decides, by what was read alone. [Gather] puts that in order.
// [Evidence.Weigh] says of a pool what is to be kept for whom, and what it waits for;
// docs/decisions/0035 says which proofs count. [Evidence.Ended] says what is not kept any
// more. The [Verdict] on a pool is what package pools follows.
//
// [ReadDefinition], [WhereaboutsPool] and [WhereaboutsReservation] read what other IPAMs say.
package foreign
