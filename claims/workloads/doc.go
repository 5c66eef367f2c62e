// Package workloads makes the claims of StatefulSets: one for each ordinal and each network
// that the pod template names in the annotation tenure.dev/claims. It keeps and deletes them
// as Kubernetes does a StatefulSet's volume claims.
//
// What is to be done is decided by a pure function, decide, out of what was read; the
// Reconciler reads and does it. The claims get their addresses by package claims.
package workloads
