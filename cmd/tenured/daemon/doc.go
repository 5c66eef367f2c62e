// Package daemon wires one node's agent to its host and its cluster: what the
// program tenured runs, and what tests run many of.
package daemon
