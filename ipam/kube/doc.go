// Package kube runs the lease protocol's effects against the API server: it
// turns the protocol's values into objects, sends one call, and says what is
// known of its outcome. It decides nothing.
//
// Every read is live: the client that it is given must have no cache
// (docs/contributing/protocol.md, rule 2).
package kube
