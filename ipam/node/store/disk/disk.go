// Package disk is what a store keeps its records on: ordered maps, called buckets, which are
// changed by transactions. bbolt's file is one such disk; [Memory] is another, for
// simulations.
package disk

import "errors"

// ErrAgain is returned by [Tx.Commit] where nothing was committed, and the same changes
// fit once they are made in another transaction.
var ErrAgain = errors.New("the disk has made room: make the changes again")

// ErrClosed is returned by [Disk.Begin] after Close.
var ErrClosed = errors.New("the disk is closed")

// A Disk keeps buckets. Its methods may be called by several goroutines at a time.
type Disk interface {
	// Scan reads all that is on the disk, by no transaction, and calls visit for every
	// record. It returns the number of the last commit, 0 of an empty disk. Key and value are
	// valid during the call.
	Scan(visit func(bucket string, key, value []byte) error) (number uint64, err error)
	// Begin begins a transaction, which sees the last commit. The caller has only one at a
	// time that is writable.
	Begin(writable bool) (Tx, error)
	// Close closes the disk. No transaction is under way.
	Close() error
}

// A Tx is a transaction. It is of one goroutine, and ends with Commit or Rollback. A bucket is
// named by one word, or by two with a slash between them: then it lies in that of the first.
type Tx interface {
	// Number is that of the commit which it sees, and of one that is writable the next.
	Number() uint64
	// Full is why the disk must not grow; nil is that it may. The caller then commits nothing
	// that adds to it.
	Full() error
	// Bucket returns a bucket, nil if there is none.
	Bucket(name string) Bucket
	// Create returns a bucket, and makes it if there is none.
	Create(name string) (Bucket, error)
	// Drop removes a bucket.
	Drop(name string) error
	// Within returns what is after the slash in the names of the buckets in another, in order.
	Within(name string) ([]string, error)
	// Commit returns when all that was changed is on the disk. Other transactions may see
	// it earlier; after an error it may be there or not.
	Commit() error
	// Rollback forgets what was changed. After Commit it does nothing.
	Rollback() error
}

// A Bucket is an ordered map. What its methods return is valid until the next change. It
// keeps the values that it is given until the transaction ends, but not the keys.
type Bucket interface {
	// Get returns what is under key, nil if there is nothing.
	Get(key []byte) []byte
	Put(key, value []byte) error
	Delete(key []byte) error
	Cursor() Cursor
}

// A Cursor goes through a bucket. A change of the bucket ends it.
type Cursor interface {
	// Seek returns the first record whose key is not less than key; a nil key if there is none.
	Seek(key []byte) (k, v []byte)
	// Next returns the record after the last one.
	Next() (k, v []byte)
}
