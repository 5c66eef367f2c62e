// Package claims gives IPAMClaims their addresses, and takes them back when claim
// and last use are gone.
//
// An address is allocated as soon as its claim exists and its network is known,
// before any pod. The truth is the grant on a block's lease, which package grants
// writes; the claim's status is its copy, written once. What is to be done about
// a claim is decided by a pure function, plan, out of what was read; the
// Reconciler reads and does it. Of a claim it writes the status alone, and of a
// claim whose network is not Tenure's it writes nothing.
package claims
