// Package agent is the node's side of Tenure: it answers the CNI plugin over the
// node socket, hands out addresses of the blocks that its node has leased, and
// keeps those leases. It runs the steps of package protocol on the node's store
// and on the small interfaces that it declares of the cluster; it knows neither
// Kubernetes nor CNI.
//
// docs/contributing/how-an-add-travels.md follows one ADD through it, docs/contributing/protocol.md
// says why each step stands where it does.
package agent
