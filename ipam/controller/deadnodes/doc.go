// Package deadnodes gives what dead nodes held back to the cluster. It runs the
// rules of ipam/protocol's dead.go: caches and watches say when to look at a registration,
// live reads decide, and every write is a compare-and-swap. docs/contributing/protocol.md, "Dead
// nodes", says why each step stands where it does.
package deadnodes
