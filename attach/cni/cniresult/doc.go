// Package cniresult reads and writes results of CNI plugins as the CNI library does,
// at a small part of its cost.
//
// The library writes a result as JSON, reads that as general JSON and writes it
// again, and encoding/json learns a dozen types on the way. A CNI plugin lives for
// one call, so that it pays for this each time. This package knows by itself the
// results of CNI 1.0.0 and 1.1.0 that have the members of the specification and no
// others; everything else goes through the library, which is the standard.
package cniresult
