package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// findings is what a scan found.
type findings struct {
	id     protocol.StoreID
	number uint64 // of the last transaction
	st     state
}

// A scanner checks the records that it visits, and adds them up.
type scanner struct {
	schema []byte
	err    error // the first record's that is wrong
	id     protocol.StoreID
	st     *state
	sum    digest
}

// survey reads all that d has, and reports whether it is a store that this package wrote,
// undamaged.
func survey(d interface {
	Scan(visit func(bucket string, key, value []byte) error) (uint64, error)
}) (findings, error) {
	var sc scanner
	number, err := d.Scan(sc.visit)
	if err == nil {
		err = corrupt(sc.verdict())
	}
	if err != nil {
		return findings{}, err
	}
	return findings{id: sc.id, number: number, st: *sc.st}, nil
}

// sizeOf returns the size of a file, and an error of what is none.
func sizeOf(f *os.File) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() {
		return 0, fmt.Errorf("it is not a file: its mode is %v", info.Mode())
	}
	return info.Size(), nil
}

// pagesOf is a file of bbolt's that is only read.
type pagesOf struct {
	r    io.ReaderAt
	size int64
}

// Scan is that of [disk.Disk].
func (p pagesOf) Scan(visit func(bucket string, key, value []byte) error) (uint64, error) {
	m, err := readMeta(p.r, p.size)
	if err != nil {
		return 0, corrupt(err)
	}
	w := walker{r: p.r, meta: m, visit: func(in [][]byte, key, value []byte) error {
		return visit(string(bytes.Join(in, []byte{'/'})), key, value)
	}}
	return m.txid, corrupt(w.walk())
}

// visit keeps the first error for later: the schema, which decides what a
// record is, is not the first thing in the file.
func (sc *scanner) visit(bucket string, key, value []byte) error {
	if err := sc.record(bucket, key, value); err != nil && sc.err == nil {
		sc.err = fmt.Errorf("%s: record %q: %w", bucket, key, err)
	}
	return nil
}

func (sc *scanner) record(bucket string, key, value []byte) error {
	if !known(bucket) {
		return errors.New("there is no such bucket")
	}
	inMeta := bucket == bucketMeta
	if inMeta && bytes.Equal(key, keySchema) {
		sc.schema = bytes.Clone(value)
		return nil
	}
	payload, err := unseal(seedOf(bucket), key, value)
	switch {
	case err != nil:
		return err
	case inMeta && bytes.Equal(key, keyState):
		st, err := parseState(payload)
		sc.st = &st
		return err
	case inMeta:
		return errors.New("it is unknown")
	case bucket == bucketNode && bytes.Equal(key, keyID):
		sc.id = protocol.StoreID(payload)
	}
	sc.sum.add(value)
	return nil
}

// known reports whether a store has such a bucket with records.
func known(bucket string) bool {
	top, pool, nested := strings.Cut(bucket, "/")
	return slices.Contains(topBuckets, top) && nested == (top == bucketPools) && !strings.Contains(pool, "/")
}

// verdict reports what of the whole is wrong.
func (sc *scanner) verdict() error {
	if sc.schema == nil {
		return errors.New("it has no schema number: another program wrote it")
	}
	if err := checkSchema(sc.schema); err != nil {
		return err
	}
	switch {
	case sc.err != nil:
		return sc.err
	case sc.st == nil:
		return errors.New("meta/state is missing")
	case sc.sum != sc.st.digest:
		return fmt.Errorf("it has %d records with sum %x, and meta/state says %d with sum %x: some are lost, or from an earlier time",
			sc.sum.records, sc.sum.sum, sc.st.records, sc.st.sum)
	case sc.id == "":
		return errors.New("node/id is missing")
	default:
		return nil
	}
}
