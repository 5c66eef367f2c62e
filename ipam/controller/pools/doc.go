// Package pools looks after IPPools: it decides their block sizes, opens and
// closes them, counts their addresses, says how scarce these are, and lets a
// deleted pool go when its last lease is gone. It also makes the implicit pools
// that NetworkAttachmentDefinitions describe inline.
//
// What is to be done about a pool is decided by pure functions, decide and
// decideImplicit, out of what was read; the reconcilers read and do it.
package pools
