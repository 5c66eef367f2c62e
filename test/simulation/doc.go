// Package simulation plays the lease protocol against everything that can happen
// to a cluster: its tests run the steps that ship, for nodes and controller, on a
// simulated API server, with simulated disks and clocks, under a scheduler that a
// seed drives, and hold the invariants after each step.
package simulation
