package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// findings is what a scan found.
type findings struct {
	id   protocol.StoreID
	size int64  // of the file
	txid uint64 // of its last bbolt transaction
	st   state
}

// A scanner checks the records that a walker visits, and adds them up.
type scanner struct {
	schema []byte
	err    error // the first record's that is wrong
	id     protocol.StoreID
	st     *state
	sum    digest
}

// scan reads the whole file and reports whether it is one that this package
// wrote, undamaged.
func scan(f *os.File) (findings, error) {
	size, err := sizeOf(f)
	if err != nil {
		return findings{}, err
	}
	return scanAt(f, size)
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

// scanAt is scan of what r has up to size.
func scanAt(r io.ReaderAt, size int64) (findings, error) {
	m, err := readMeta(r, size)
	if err != nil {
		return findings{}, corrupt(err)
	}
	var sc scanner
	w := walker{r: r, meta: m, visit: sc.visit}
	if err := w.walk(); err != nil {
		return findings{}, corrupt(err)
	}
	if err := sc.verdict(); err != nil {
		return findings{}, corrupt(err)
	}
	return findings{id: sc.id, size: size, txid: m.txid, st: *sc.st}, nil
}

// visit keeps the first error for later: the schema, which decides what a
// record is, is not the first thing in the file.
func (sc *scanner) visit(in [][]byte, key, value []byte) error {
	if err := sc.record(in, key, value); err != nil && sc.err == nil {
		sc.err = fmt.Errorf("%s: record %q: %w", bytes.Join(in, []byte{'/'}), key, err)
	}
	return nil
}

func (sc *scanner) record(in [][]byte, key, value []byte) error {
	seed, ok := sc.seed(in)
	if !ok {
		return errors.New("there is no such bucket")
	}
	inMeta := bytes.Equal(in[0], bucketMeta)
	if inMeta && bytes.Equal(key, keySchema) {
		sc.schema = bytes.Clone(value)
		return nil
	}
	payload, err := unseal(seed, key, value)
	switch {
	case err != nil:
		return err
	case inMeta && bytes.Equal(key, keyState):
		st, err := parseState(payload)
		sc.st = &st
		return err
	case inMeta:
		return errors.New("it is unknown")
	case bytes.Equal(in[0], bucketNode) && bytes.Equal(key, keyID):
		sc.id = protocol.StoreID(payload)
	}
	sc.sum.add(value)
	return nil
}

// seed returns where the checksums of a bucket's records start.
func (sc *scanner) seed(in [][]byte) (seed uint32, ok bool) {
	isTop := func(name []byte) bool { return bytes.Equal(name, in[0]) }
	switch {
	case len(in) == 0 || !slices.ContainsFunc(topBuckets, isTop):
		return 0, false
	case bytes.Equal(in[0], bucketPools):
		return seedOf(in[0], in[len(in)-1]), len(in) == 2
	default:
		return seedOf(in[0], nil), len(in) == 1
	}
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
