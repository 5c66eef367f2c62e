// Package store is what this node promised, durably: which attachment has which
// addresses, which rights the node holds of the cluster, and what the allocator
// keeps of every pool, in one bbolt file (boltfile.go), or on another disk
// that a simulation has ([OpenOn]).
//
// [Store.Update] returns nil only when its change is on disk. Calls that are
// under way together share one commit: while the disk syncs one batch, the next
// one gathers, and one of its callers commits it. No timer and no goroutine is
// involved, so a lone caller waits for nobody.
//
// A damaged file is never read as if it were whole. Opening reads all of it,
// structure and checksums (schema.go draws the layout), before bbolt sees it,
// and every later read checks the records that it reads again. What these cannot
// tell is damage that comes to the tree between the records while the file is
// open: [Store.Check] finds that, and so does the next Open. See [ErrCorrupt].
//
// Local mode opens a store for one call with [OpenLocal], which waits for other
// processes; an agent keeps it open, and a second agent gets [ErrLocked].
package store
