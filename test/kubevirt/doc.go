// Package kubevirt stands in for KubeVirt in tests and the demo: it makes virtual
// machines into instances, instances into launcher pods, and IPAMClaims for them,
// with the objects, labels, owners and finalizers that KubeVirt and its IPAM
// extension have, and lets each go when they do.
//
//	VirtualMachine -owns-> VirtualMachineInstance -owns-> launcher pods (two while it migrates)
//	       '-------owns-> IPAMClaim <vm>.<network>, with a finalizer of its own
//
// What runs is a real controller on real objects. What it leaves out is the
// virtual machine: a launcher pod is a pod like any other. Whoever plays the
// kubelet binds it, attaches its networks, and ends it.
//
// The directory crds holds the definitions of its two kinds.
package kubevirt
