package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
)

// bbolt trusts its file: a wrong page number sends it round in circles, a wrong
// length reads memory that is not the file's, and at opening it panics on a
// goroutine of its own, where nobody can recover. So this file reads the tree
// first, by plain reads and with every number checked. The format is bbolt's
// version 2, unchanged since 2014; numbers have the machine's byte order:
//
//	page    id u64, flags u16, count u16, overflow u32, then count elements
//	meta    magic u32, version u32, page size u32, flags u32, root bucket,
//	        free list u64, pages u64, transaction u64, fnv64a of all that
//	branch  position u32, key size u32, page u64         (position: from the element)
//	leaf    flags u32, position u32, key size u32, value size u32
//	bucket  root page u64, sequence u64; root page 0: a page follows (inline)
const (
	pageHeader  = 16
	metaSize    = 64
	branchSize  = 16
	leafSize    = 16
	bucketSize  = 16
	noFreelist  = ^uint64(0)
	boltMagic   = 0xED0CDAED
	boltVersion = 2

	flagBranch = 0x01
	flagLeaf   = 0x02
	flagMeta   = 0x04
	flagBucket = 0x01 // of a leaf's element

	maxDepth = 32 // pages from a root to a leaf; 10^9 records need 5
)

var native = binary.NativeEndian

// meta is what a meta page says.
type meta struct {
	pageSize uint32
	root     uint64
	freelist uint64
	pages    uint64 // how many are in use: every page number is lower
	txid     uint64
}

// walker reads the tree of one meta page.
type walker struct {
	r io.ReaderAt
	meta
	seen []uint64 // a bit per page: no page may be met twice
	// visit is called for every pair that is not a bucket, with the names of
	// the buckets that it is in. They, key and value are valid during the call.
	visit func(in [][]byte, key, value []byte) error
	in    [][]byte
}

// readMeta returns the newer of the two meta pages. bbolt would go back to the
// older one when the newer is damaged, and would not say that a commit, which
// has been answered, is lost with it. A crash cannot damage one: what is used
// of a meta page lies in one sector.
func readMeta(r io.ReaderAt, size int64) (meta, error) {
	var first [pageHeader + metaSize]byte
	if _, err := r.ReadAt(first[:], 0); err != nil {
		return meta{}, fmt.Errorf("read of meta page 0: %w", err)
	}
	m, err := parseMeta(first[:], 0)
	if err != nil {
		return meta{}, err
	}
	var second [pageHeader + metaSize]byte
	if _, err := r.ReadAt(second[:], int64(m.pageSize)); err != nil {
		return meta{}, fmt.Errorf("read of meta page 1: %w", err)
	}
	other, err := parseMeta(second[:], 1)
	switch {
	case err != nil:
		return meta{}, err
	case other.pageSize != m.pageSize:
		return meta{}, fmt.Errorf("the meta pages disagree on the page size: %d and %d", m.pageSize, other.pageSize)
	case other.txid != m.txid+1 && m.txid != other.txid+1:
		return meta{}, fmt.Errorf("the meta pages are of transactions %d and %d, which do not follow each other", m.txid, other.txid)
	}
	if other.txid > m.txid {
		m = other
	}
	if m.freelist != noFreelist {
		return meta{}, errors.New("it has a list of free pages: another program has written it")
	}
	if m.pages < 4 || m.pages > uint64(size)/uint64(m.pageSize) {
		return meta{}, fmt.Errorf("the file has %d bytes and needs %d pages of %d: it is cut off", size, m.pages, m.pageSize)
	}
	return m, nil
}

func parseMeta(page []byte, id uint64) (meta, error) {
	body := page[pageHeader:]
	sum := fnv.New64a()
	_, _ = sum.Write(body[:metaSize-8]) // a hash's Write has no error
	m := meta{
		pageSize: native.Uint32(body[8:]),
		root:     native.Uint64(body[16:]),
		freelist: native.Uint64(body[32:]),
		pages:    native.Uint64(body[40:]),
		txid:     native.Uint64(body[48:]),
	}
	size := m.pageSize
	switch {
	case native.Uint32(body) != boltMagic:
		return meta{}, fmt.Errorf("meta page %d: it is not bbolt's", id)
	case native.Uint32(body[4:]) != boltVersion:
		return meta{}, fmt.Errorf("meta page %d: bbolt's version is %d, want %d", id, native.Uint32(body[4:]), boltVersion)
	case native.Uint64(body[metaSize-8:]) != sum.Sum64():
		return meta{}, fmt.Errorf("meta page %d fails its checksum", id)
	case native.Uint64(page) != id || native.Uint16(page[8:])&flagMeta == 0:
		return meta{}, fmt.Errorf("meta page %d: its header is wrong", id)
	case size < 1024 || size > 1<<16 || size&(size-1) != 0:
		return meta{}, fmt.Errorf("meta page %d: the page size is %d", id, size)
	default:
		return m, nil
	}
}

// walk visits the whole tree.
func (w *walker) walk() error {
	w.seen = make([]uint64, w.pages/64+1)
	w.seen[0] = 3 // the meta pages
	return w.tree(w.root, nil, nil, maxDepth)
}

// tree visits the subtree of page id, whose keys lie in [low, high); nil is no
// bound.
func (w *walker) tree(id uint64, low, high []byte, depth int) error {
	if depth == 0 {
		return fmt.Errorf("page %d lies too deep", id)
	}
	p, err := w.page(id)
	if err != nil {
		return err
	}
	flags, count := native.Uint16(p[8:]), int(native.Uint16(p[10:]))
	switch flags {
	case flagLeaf:
		err = w.leaf(p, count, low, high)
	case flagBranch:
		return w.branch(id, p, count, low, high, depth)
	default:
		err = fmt.Errorf("flags are %#x, want a branch's or a leaf's", flags)
	}
	if err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	return nil
}

// page returns page id with those that it runs over to.
func (w *walker) page(id uint64) ([]byte, error) {
	if id < 2 || id >= w.pages {
		return nil, fmt.Errorf("page %d is named, and there are %d", id, w.pages)
	}
	p := make([]byte, w.pageSize)
	if _, err := w.r.ReadAt(p, int64(id)*int64(w.pageSize)); err != nil {
		return nil, fmt.Errorf("page %d: %w", id, err)
	}
	more := uint64(native.Uint32(p[12:]))
	if native.Uint64(p) != id || more >= w.pages-id {
		return nil, fmt.Errorf("page %d: its header is wrong", id)
	}
	for at := id; at <= id+more; at++ {
		if w.seen[at/64]&(1<<(at%64)) != 0 {
			return nil, fmt.Errorf("page %d is named twice", at)
		}
		w.seen[at/64] |= 1 << (at % 64)
	}
	if more > 0 {
		p = append(p, make([]byte, more*uint64(w.pageSize))...)
		if _, err := w.r.ReadAt(p[w.pageSize:], int64(id+1)*int64(w.pageSize)); err != nil {
			return nil, fmt.Errorf("page %d: %w", id, err)
		}
	}
	return p, nil
}

func (w *walker) branch(id uint64, p []byte, count int, low, high []byte, depth int) error {
	if count == 0 || pageHeader+count*branchSize > len(p) {
		return fmt.Errorf("page %d: a branch of %d elements", id, count)
	}
	key := func(i int) ([]byte, error) {
		at := pageHeader + i*branchSize
		return cut(p, count, at, native.Uint32(p[at:]), native.Uint32(p[at+4:]))
	}
	from, err := key(0)
	for i := range count {
		to := high
		if err == nil && i+1 < count {
			to, err = key(i + 1)
		}
		if err == nil {
			err = ordered(from, low, to)
		}
		if err != nil {
			return fmt.Errorf("page %d: element %d: %w", id, i, err)
		}
		if err := w.tree(native.Uint64(p[pageHeader+i*branchSize+8:]), from, to, depth-1); err != nil {
			return err
		}
		from, low = to, to
	}
	return nil
}

func (w *walker) leaf(p []byte, count int, low, high []byte) error {
	if pageHeader+count*leafSize > len(p) {
		return fmt.Errorf("a leaf of %d elements", count)
	}
	var last []byte
	for i := range count {
		at := pageHeader + i*leafSize
		flags, pos := native.Uint32(p[at:]), native.Uint32(p[at+4:])
		keys, values := native.Uint32(p[at+8:]), native.Uint32(p[at+12:])
		both, err := cut(p, count, at, pos, uint64(keys)+uint64(values))
		if err != nil {
			return fmt.Errorf("element %d: %w", i, err)
		}
		key, value := both[:keys:keys], both[keys:]
		if err := ordered(key, low, high); err != nil {
			return fmt.Errorf("element %d: %w", i, err)
		}
		if i > 0 && bytes.Compare(last, key) >= 0 {
			return fmt.Errorf("element %d: key %q comes after %q", i, key, last)
		}
		last = key
		switch flags {
		case 0:
			err = w.visit(w.in, key, value)
		case flagBucket:
			err = w.bucket(key, value)
		default:
			err = fmt.Errorf("flags are %#x", flags)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// bucket visits the bucket whose header is value.
func (w *walker) bucket(name, value []byte) error {
	if len(value) < bucketSize || len(w.in) == maxDepth {
		return fmt.Errorf("bucket %q has no header", name)
	}
	w.in = append(w.in, name)
	defer func() { w.in = w.in[:len(w.in)-1] }()
	if root := native.Uint64(value); root != 0 {
		return w.tree(root, nil, nil, maxDepth)
	}
	p := value[bucketSize:]
	if len(p) < pageHeader || native.Uint16(p[8:]) != flagLeaf || native.Uint32(p[12:]) != 0 {
		return fmt.Errorf("bucket %q: its inline page is wrong", name)
	}
	if err := w.leaf(p, int(native.Uint16(p[10:])), nil, nil); err != nil {
		return fmt.Errorf("bucket %q: %w", name, err)
	}
	return nil
}

// cut returns n bytes at pos beyond the element at offset at of a page of count
// elements.
func cut[N uint32 | uint64](p []byte, count, at int, pos uint32, n N) ([]byte, error) {
	start := uint64(at) + uint64(pos)
	if start < uint64(pageHeader+count*leafSize) || start > uint64(len(p)) || uint64(n) > uint64(len(p))-start {
		return nil, fmt.Errorf("%d bytes at %d are not in the page", n, start)
	}
	return p[start : start+uint64(n) : start+uint64(n)], nil
}

// ordered reports a key outside [low, high).
func ordered(key, low, high []byte) error {
	if low != nil && bytes.Compare(key, low) < 0 || high != nil && bytes.Compare(key, high) >= 0 {
		return fmt.Errorf("key %q is not between %q and %q", key, low, high)
	}
	return nil
}
