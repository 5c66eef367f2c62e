// Package recovery finds out, after a node's store was lost, which attachments it
// knew: from the results that the CNI library keeps on the host, and from what the
// status annotations of the node's pods say.
//
// No right rests on what is found: nothing is given out of a lost store's leases in
// any case (docs/contributing/protocol.md). It serves CHECK, DEL and a repeated ADD of attachments
// that still run, and tells their addresses' users apart.
package recovery
