package store

import (
	"errors"
	"os"
	"strings"
	"syscall"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/tenure-ipam/tenure/ipam/node/store/disk"
)

// A boltFile is bbolt's file as a [disk.Disk]. space.go sees to it that it has room.
type boltFile struct {
	f    *os.File // db's own; db closes it
	db   *bolt.DB // nil before open
	size int64    // the file's, when it was last looked at
	grow func(f *os.File, to int64) error
	// stuck says that bbolt will never give its writer's lock back.
	stuck bool
}

// mapped is how much of the file bbolt maps from the start. A map that is too
// small is made anew, for which bbolt waits until no reader is left. A map costs
// addresses, not memory; this one holds about 100,000 attachments.
const mapped = 64 << 20

// boltOptions are bbolt's for a file that is open already, as f.
//
// The free list is kept in memory alone (NoFreelistSync): a commit writes one
// page less, and a list on disk that a flipped bit makes wrong hands out pages
// that are in use. It is found again by walking the tree, which opening does
// anyway. FreelistMapType takes a free page in constant time. bbolt syncs with
// fdatasync, pages before the meta page that names them; NoSync and NoGrowSync stay
// off. Timeout is as good as none: the lock is held already.
func boltOptions(f *os.File, readOnly bool) *bolt.Options {
	return &bolt.Options{
		Timeout:         1,
		NoFreelistSync:  true,
		FreelistType:    bolt.FreelistMapType,
		InitialMmapSize: mapped,
		ReadOnly:        readOnly,
		OpenFile:        func(string, int, os.FileMode) (*os.File, error) { return f, nil },
	}
}

// open hands the file at path to bbolt, which trusts it.
func (d *boltFile) open(path string, o *bolt.Options) (err error) {
	if d.size, err = sizeOf(d.f); err != nil {
		return err
	}
	if d.db, err = bolt.Open(path, 0, o); err != nil {
		return err
	}
	d.db.AllocSize = 1 // bbolt needs no more than it asks for
	return nil
}

// Scan implements [disk.Disk].
func (d *boltFile) Scan(visit func(bucket string, key, value []byte) error) (uint64, error) {
	size, err := sizeOf(d.f)
	if err != nil {
		return 0, err
	}
	return pagesOf{d.f, size}.Scan(visit)
}

// Begin implements [disk.Disk].
func (d *boltFile) Begin(writable bool) (disk.Tx, error) {
	bt, err := d.db.Begin(writable)
	if errors.Is(err, bolterrors.ErrDatabaseNotOpen) {
		return nil, disk.ErrClosed
	}
	if err != nil {
		return nil, err
	}
	tx := boltTx{bt: bt, d: d, writable: writable}
	if writable {
		if tx.full, err = d.makeRoom(bt); err != nil {
			return nil, errors.Join(err, tx.Rollback())
		}
	}
	return tx, nil
}

// Close implements [disk.Disk]. A file that bbolt is stuck with is unlocked for the next process.
func (d *boltFile) Close() error {
	if d.stuck {
		return errors.Join(flock(d.f, syscall.LOCK_UN), d.f.Close())
	}
	return d.db.Close()
}

// boltTx is a transaction of bbolt's as a [disk.Tx].
type boltTx struct {
	bt       *bolt.Tx
	d        *boltFile
	writable bool
	full     error
}

func (tx boltTx) Number() uint64 { return uint64(tx.bt.ID()) }
func (tx boltTx) Full() error    { return tx.full }

func (tx boltTx) Bucket(name string) disk.Bucket {
	top, within, nested := strings.Cut(name, "/")
	b := tx.bt.Bucket([]byte(top))
	if b != nil && nested {
		b = b.Bucket([]byte(within))
	}
	if b == nil {
		return nil
	}
	return boltBucket{b}
}

func (tx boltTx) Create(name string) (disk.Bucket, error) {
	top, within, nested := strings.Cut(name, "/")
	b, err := tx.bt.CreateBucketIfNotExists([]byte(top))
	if err == nil && nested {
		b, err = b.CreateBucketIfNotExists([]byte(within))
	}
	return boltBucket{b}, err
}

func (tx boltTx) Drop(name string) error {
	top, within, nested := strings.Cut(name, "/")
	if !nested {
		return tx.bt.DeleteBucket([]byte(top))
	}
	return tx.bt.Bucket([]byte(top)).DeleteBucket([]byte(within))
}

func (tx boltTx) Within(name string) (within []string, err error) {
	err = tx.bt.Bucket([]byte(name)).ForEachBucket(func(k []byte) error {
		within = append(within, string(k))
		return nil
	})
	return within, err
}

func (tx boltTx) Commit() error {
	err := tx.bt.Commit()
	if errors.Is(err, bolterrors.ErrMaxSizeReached) {
		if err = tx.d.growTo(2 * tx.d.size); err == nil {
			err = disk.ErrAgain
		}
	}
	return err
}

// Rollback implements [disk.Tx]. bbolt may have contradicted itself halfway: if it cannot even
// give up, it keeps its lock, and nothing that needs it may be tried any more.
func (tx boltTx) Rollback() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = asDamage(p)
			if tx.writable {
				tx.d.stuck = true
			}
		}
	}()
	if err := tx.bt.Rollback(); !errors.Is(err, bolterrors.ErrTxClosed) {
		return err
	}
	return nil
}

type boltBucket struct{ *bolt.Bucket }

func (b boltBucket) Cursor() disk.Cursor { return b.Bucket.Cursor() }
