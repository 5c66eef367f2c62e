// Package agent is the node's side of Tenure: it answers the CNI plugin over the
// node socket, hands out addresses of the blocks that its node has leased, and
// keeps those leases. It runs the steps of package protocol on the node's store
// and on the small interfaces that it declares of the cluster; it knows neither
// Kubernetes nor CNI.
//
// Its files are in rooms, by the type that owns the state there. Each type has its own lock, or
// none, and uses those before it alone:
//
//	base          what all use: the store, the cluster, the scheduler
//	registration  the node's registration, and how far the API server was seen to come
//	pools         the pools that the node follows, as last heard of
//	rights        the records of leases and uses, step by step
//	blocks        leasing blocks, giving them back, and ceding what is free of them
//	attachments   freeing what interfaces have: by DEL, by the journal, as garbage
//	losses        what a lost store, or another machine, has left in the node's name
//	strangers     addresses of the pools that somebody unknown has on the segment
//	Agent         serving ADD (add), DEL, CHECK, GC and STATUS (serve)
//
// docs/contributing/how-an-add-travels.md follows one ADD through it, docs/contributing/protocol.md
// says why each step stands where it does.
package agent
