// Package protocol is the lease protocol as pure steps: a state and an event
// give the next state and the effects to run. Agent and controller run the same
// steps, and so does the simulation that proves them. docs/contributing/protocol.md explains
// what each step is for; the names here are the names there.
//
// Nothing in this package does I/O, reads a clock, or knows Kubernetes. Objects
// of the cluster appear as the values of objects.go, outcomes of API calls as
// events, and every right that a node holds as a [Right], which is what the
// node's store keeps.
package protocol
