// Package cninet is for tests of real pod networks: named network namespaces,
// CNI plugins run in them as a container runtime would, pings between them, and
// what the kernel says they contain.
//
// It makes namespaces in /run/netns and interfaces in the network namespace of
// the process, so it belongs in a [sandbox], whose end removes all of them.
// Pings are made here; no program is needed but the plugins.
package cninet
