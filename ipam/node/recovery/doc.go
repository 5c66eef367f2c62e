// Package recovery finds out, after a node's store was lost, which attachments it
// knew: from the results that the CNI library keeps on the host.
//
// No right rests on what is found: nothing is given out of a lost store's leases in
// any case (docs/contributing/protocol.md). It serves CHECK, DEL and a repeated ADD of attachments
// that still run, and gives a pod that asks for its address by name this address again in a new
// sandbox.
package recovery
