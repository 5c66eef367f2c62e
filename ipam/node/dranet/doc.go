// Package dranet answers DRANET, the driver that moves a node's network devices into pods: it is a
// profile provider by the contract of sigs.k8s.io/dranet 1.4, over HTTP on a socket of its own. A
// profile names a pool or a network definition, and what is answered are the addresses of a device
// of a ResourceClaim, with routes and MTU.
//
// It turns text into types and back. Who has which address the agent decides.
package dranet
