package allocator

// Table is an ordered map from byte strings to byte strings that the caller
// keeps: a bucket of a database on a node, memory elsewhere. Keys are in the
// order of [bytes.Compare]. A Table need not be safe for concurrent use.
//
// Slices that Get and Seek return belong to the Table: they must not be changed,
// and are valid until the next Put or Delete. The Table does not keep the key of
// a call, but may keep the value of a Put, which the caller must not change
// afterwards.
type Table interface {
	// Get returns the value at key, or nil if there is none.
	Get(key []byte) []byte

	// Put sets the value at key. No key and no value that a Space puts is empty.
	Put(key, value []byte) error

	// Delete removes key. It does nothing if there is none.
	Delete(key []byte) error

	// Seek returns the first entry at or after key; k is nil where there is none.
	Seek(key []byte) (k, v []byte)
}
