// Package requests answers what nodes ask for by sub-lease: the addresses that one
// ADD lacks, out of blocks that its node does not hold.
//
// The addresses come from package grants, which serves requests and claims in order
// of arrival and has other nodes asked to cede what is free. The truth is the grant
// on a block's lease; the sub-lease's status is written once and decides: grants
// that it does not name, and those to a sub-lease that is gone, are dropped after a
// live read has shown it. An exhausted pool refuses nobody. Its requests wait, each
// until it is served or its node deletes it.
//
// What is to be done about a request is decided by a pure function, decide, out of
// what was read; the Reconciler reads and does it.
package requests
