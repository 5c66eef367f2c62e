// Package kube runs the lease protocol's effects against the API server: it
// turns the protocol's values into objects, sends one call, and says what is
// known of its outcome. It decides nothing.
//
// Every read is live: the client that it is given must have no cache
// (docs/contributing/protocol.md, rule 2). The one list that the API server may answer out of its
// own cache, [API.LeasedBlocks], is for choosing where to try, not for deciding.
package kube
