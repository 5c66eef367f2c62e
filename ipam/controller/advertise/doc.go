// Package advertise publishes on Nodes how many addresses of a pool pods there may ask for, as the
// extended resource tenure.dev/<pool>, for pools with spec.advertise. The scheduler then puts pods
// that ask for it where an address can be had, and quotas count them.
//
// What nodes are to publish is decided by a pure function, plan, out of what was read; the
// reconciler reads, and writes.
package advertise
