// Package cniresults reads the results that the CNI library keeps on the host for
// every attachment: what a runtime, or a meta-plugin, was answered, by whoever
// answered it. A node whose own record of its promises was lost reads them back
// from there. tenure-attach keeps its own in the same form, a line for each attachment.
//
// The files are others': what does not read as expected is passed over, never
// guessed at.
package cniresults
