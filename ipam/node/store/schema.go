package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
)

// schema is the number of the layout that this program writes. A file with a
// higher number is refused: reading it as this one would lose what it says
// beyond it.
const schema = 1

// Layout, schema 1 (a bbolt file; every bucket at the top):
//
//	meta/schema                          "1", plain text, so that any program can read it
//	meta/state                           state: commit number, counter, number and sum of records
//	node/id                              the store ID
//	node/identity                        Identity
//	node/pool/<pool>                     what the node last heard of the pool, the caller's text
//	node/lost/<store ID>                 Lost
//	node/history                         protocol.History
//	attachments/<network/container/if>   Attachment, without its key
//	pods/<pod UID>/<if>/<attachment>     nothing: which attachments a pod has
//	uses/<right>/<attachment>            nothing: which attachments need a use
//	rights/<name>                        protocol.Right
//	pools/<pool>/<allocator's key>       allocator's value; one nested bucket per pool
//
// Every value but meta/schema is a record:
//
//	+---------+---------------------+-------------------------------------+
//	| version |       payload       | crc32(bucket, key, version,         |
//	| 1 byte  |  JSON or raw bytes  |        payload), 4 bytes, big end.  |
//	+---------+---------------------+-------------------------------------+
//
// bbolt keeps checksums of its two meta pages alone. The record's checksum
// tells a flipped bit where it is read; the sum in meta/state, which every
// commit renews, tells at opening that a record is missing, twice there, or of
// an older time, which no checksum of a single record can.
const (
	bucketMeta        = "meta"
	bucketNode        = "node"
	bucketAttachments = "attachments"
	bucketPods        = "pods"
	bucketUses        = "uses"
	bucketRights      = "rights"
	bucketPools       = "pools"
)

var (
	keySchema   = []byte("schema")
	keyState    = []byte("state")
	keyID       = []byte("id")
	keyIdentity = []byte("identity")
)

// topBuckets are all buckets at the top of a file, the tables' last. Their places stand in
// the redo logs of earlier versions.
var topBuckets = []string{
	bucketMeta, bucketNode, bucketAttachments, bucketPods, bucketUses, bucketRights, bucketPools,
}

// recordVersion is the first byte of every record that this program writes.
const recordVersion = 1

// recordOverhead is what a record has beyond its payload.
const recordOverhead = 1 + 4

// errRecord is what is wrong with a record that fails its checksum.
var errRecord = errors.New("the record fails its checksum")

// seedOf returns where the checksums of a bucket's records start: the same
// record under another bucket, or in another pool, is a wrong one.
//
// They are CRC-32 as IEEE has it, which notices any four flipped bits in a record of
// up to 370 bytes. Castagnoli's notices five, but hash/crc32 takes 0.15 ms to get
// ready for it: a process of local mode, which lives for one call, would spend as
// long on that as on half of its commit.
func seedOf(bucket string) uint32 {
	return crc32.ChecksumIEEE([]byte(bucket))
}

// checksum returns the checksum of a record's body, which is version and payload.
func checksum(seed uint32, key, body []byte) uint32 {
	n := len(key)
	crc := crc32.Update(seed, crc32.IEEETable, []byte{byte(n >> 8), byte(n)})
	crc = crc32.Update(crc, crc32.IEEETable, key)
	return crc32.Update(crc, crc32.IEEETable, body)
}

// seal appends the record of payload under key to buf.
func seal(buf []byte, seed uint32, key, payload []byte) []byte {
	start := len(buf)
	buf = append(buf, recordVersion)
	buf = append(buf, payload...)
	return binary.BigEndian.AppendUint32(buf, checksum(seed, key, buf[start:]))
}

// unseal returns the payload of record, which stands under key. The payload
// shares record's memory, and is not nil.
func unseal(seed uint32, key, record []byte) ([]byte, error) {
	if len(record) < recordOverhead {
		return nil, fmt.Errorf("%w: %d bytes are too short", errRecord, len(record))
	}
	body, sum := record[:len(record)-4], binary.BigEndian.Uint32(record[len(record)-4:])
	if checksum(seed, key, body) != sum {
		return nil, errRecord
	}
	if body[0] != recordVersion {
		return nil, fmt.Errorf("record version %d is unknown", body[0])
	}
	return body[1:len(body):len(body)], nil
}

// A digest is the count and the sum of all records of a file but those in
// meta. The sum does not depend on the records' order, so one record's change
// takes two additions.
type digest struct{ records, sum uint64 }

func (d *digest) add(record []byte) {
	d.records++
	d.sum += weight(record)
}

func (d *digest) remove(record []byte) {
	d.records--
	d.sum -= weight(record)
}

// weight spreads a record's checksum over 64 bits (the finisher of splitmix64):
// crc32 is linear, and a plain sum of linear values would let two flips cancel
// each other.
func weight(record []byte) uint64 {
	x := uint64(len(record))
	if len(record) >= 4 {
		x = x<<32 | uint64(binary.BigEndian.Uint32(record[len(record)-4:]))
	}
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// state is what every commit renews.
type state struct {
	commit  uint64 // how many commits there were
	counter uint64 // what Tx.Next returned last
	digest
}

const stateSize = 4 * 8

func (st state) append(buf []byte) []byte {
	buf = binary.BigEndian.AppendUint64(buf, st.commit)
	buf = binary.BigEndian.AppendUint64(buf, st.counter)
	buf = binary.BigEndian.AppendUint64(buf, st.records)
	return binary.BigEndian.AppendUint64(buf, st.sum)
}

func parseState(p []byte) (state, error) {
	if len(p) != stateSize {
		return state{}, fmt.Errorf("meta/state has %d bytes, want %d", len(p), stateSize)
	}
	word := func(i int) uint64 { return binary.BigEndian.Uint64(p[8*i:]) }
	return state{commit: word(0), counter: word(1), digest: digest{records: word(2), sum: word(3)}}, nil
}

// checkSchema refuses what this program cannot read.
func checkSchema(text []byte) error {
	n, err := strconv.ParseUint(string(text), 10, 32)
	switch {
	case err != nil || n == 0:
		return fmt.Errorf("meta/schema is %q, want a number: %w", text, ErrCorrupt)
	case n > schema:
		return fmt.Errorf("the file has schema %d and this program knows up to %d: run the version that wrote it, or a later one: %w", n, schema, ErrNewerSchema)
	default:
		return nil
	}
}

// What seedOf returns for two buckets, worked out beforehand.
const (
	seedMeta = 0xd7f21435
	seedNode = 0x857fe845
)
