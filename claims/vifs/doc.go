// Package vifs has the interfaces of pods decided in the control plane. For each element by which a
// pod selects a VIF definition it makes an IPAMClaim, which the pod owns. When all of a
// pod's claims have addresses it writes the map of the pod's interfaces, which its node carries
// out.
//
// What is to be done is decided by a pure function, decide, out of what was read; the Reconciler
// reads and does it. The claims get their addresses by package claims, and go with their pod by
// Kubernetes' garbage collector. What that leaves, the Reconciler sweeps.
package vifs
