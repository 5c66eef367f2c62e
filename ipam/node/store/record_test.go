package store

import (
	"encoding/json"
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// fillFields gives every field that v reaches a value that is not zero.
func fillFields(v reflect.Value, n *int) {
	*n++
	switch x := v.Addr().Interface().(type) {
	case *time.Time:
		*x = time.Unix(int64(*n)*1e8, int64(*n)).UTC()
		return
	case *netip.Addr:
		*x = netip.AddrFrom4([4]byte{10, 0, 0, byte(*n)})
		return
	case *netip.Prefix:
		*x = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(*n)}), 32)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for _, field := range v.Fields() {
			fillFields(field, n)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillFields(v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fillFields(v.Index(0), n)
		fillFields(v.Index(1), n)
	case reflect.String:
		v.SetString(strings.Repeat("x", *n%7+1) + string(rune('a'+*n%26)))
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(-*n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint64:
		v.SetUint(uint64(*n))
	default:
		panic("fill has no value for a " + v.Kind().String())
	}
}

// TestEveryFieldIsStored fails when a type that is stored gets a field that its
// record does not have.
func TestEveryFieldIsStored(t *testing.T) {
	n := 0
	var a Attachment
	fillFields(reflect.ValueOf(&a).Elem(), &n)
	got, err := decodeAttachment(a.Key.bytes(), a.encode())
	if err != nil {
		t.Fatal(err)
	}
	if d := diff(a, got); d != "" {
		t.Errorf("attachment (-want +got):\n%s", d)
	}
	text, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	var back Attachment
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if d := diff(a, back); d != "" {
		t.Errorf("JSON of an attachment (-want +got):\n%s", d)
	}

	s := newStore(t, Options{})
	var r protocol.Right
	fillFields(reflect.ValueOf(&r).Elem(), &n)
	r.Kind, r.Phase = protocol.RightUse, protocol.Lost
	var id Identity
	fillFields(reflect.ValueOf(&id).Elem(), &n)
	update(t, s, func(tx *Tx) error { return errors.Join(tx.PutRight(r), tx.PutIdentity(id)) })
	id.Store = s.ID()
	stored := read(t, s)
	if d := diff(r, stored.Rights[r.Name]); d != "" {
		t.Errorf("right (-want +got):\n%s", d)
	}
	if d := diff(id, stored.Identity); d != "" {
		t.Errorf("identity (-want +got):\n%s", d)
	}
}

func TestZeroAttachmentIsStored(t *testing.T) {
	want := Attachment{Key: Key{"n", "c", "i"}}
	got, err := decodeAttachment(want.Key.bytes(), want.encode())
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("decoded %+v; want %+v", got, want)
	}
}

// FuzzAttachmentRecord decodes what nobody wrote: an error or an attachment that
// is written as it was read, never a panic.
func FuzzAttachmentRecord(f *testing.F) {
	a := sampleAttachment(1)
	f.Add(a.encode())
	a = claimed(2)
	a.Use = "claim-uid-2.0"
	f.Add(a.encode())
	f.Add([]byte{})
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"))
	key := Key{"n", "c", "i"}
	f.Fuzz(func(t *testing.T, payload []byte) {
		a, err := decodeAttachment(key.bytes(), payload)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Errorf("decode = %v; want ErrCorrupt", err)
			}
			return
		}
		again, err := decodeAttachment(key.bytes(), a.encode())
		if err != nil {
			t.Fatalf("what was decoded cannot be: %v", err)
		}
		if d := diff(a, again); d != "" {
			t.Errorf("decoded twice (-first +second):\n%s", d)
		}
	})
}

// FuzzUnseal feeds records that nobody sealed.
func FuzzUnseal(f *testing.F) {
	f.Add([]byte("key"), seal(nil, seedNode, []byte("key"), []byte("payload")), uint16(0))
	f.Fuzz(func(t *testing.T, key, record []byte, flip uint16) {
		if payload, err := unseal(seedNode, key, record); err == nil && payload == nil {
			t.Error("unseal returns nil for a record that is there")
		}
		sealed := seal(nil, seedNode, key, record)
		if payload, err := unseal(seedNode, key, sealed); err != nil || string(payload) != string(record) {
			t.Fatalf("unseal(seal(%x)) = %x, %v", record, payload, err)
		}
		sealed[int(flip)/8%len(sealed)] ^= 1 << (flip % 8)
		if _, err := unseal(seedNode, key, sealed); err == nil {
			t.Errorf("a flipped bit of %x goes unnoticed", sealed)
		}
	})
}

func TestRecordOfAnotherPlace(t *testing.T) {
	record := seal(nil, seedOf(bucketPools+"/a"), []byte("key"), []byte("payload"))
	places := map[string]struct {
		seed uint32
		key  string
	}{
		"another key":    {seedOf(bucketPools + "/a"), "kez"},
		"another pool":   {seedOf(bucketPools + "/b"), "key"},
		"another bucket": {seedOf(bucketRights), "key"},
		"a longer key":   {seedOf(bucketPools + "/a"), "key\x01"},
	}
	for name, p := range places {
		if _, err := unseal(p.seed, []byte(p.key), record); !errors.Is(err, errRecord) {
			t.Errorf("%s: unseal = %v; want that the checksum fails", name, err)
		}
	}
}

// TestRightServes reads a right once for a batch, and anew when one is written or a
// write is undone.
func TestRightServes(t *testing.T) {
	s := newStore(t, Options{})
	right := protocol.Right{Kind: protocol.RightLease, Name: "r", Phase: protocol.Held, Term: 3}
	want := func(tx *Tx, name string, term int64, serves bool) {
		t.Helper()
		for range 2 {
			if got, err := tx.RightUsable(name, term); err != nil || got != serves {
				t.Errorf("right %s serves in term %d: %v, %v; want %v", name, term, got, err, serves)
			}
		}
	}
	update(t, s, func(tx *Tx) error {
		want(tx, "r", 3, false)
		if err := tx.PutRight(right); err != nil {
			return err
		}
		want(tx, "r", 3, true)
		want(tx, "r", 2, false)
		return nil
	})
	update(t, s, func(tx *Tx) error {
		want(tx, "r", 3, true)
		released := right
		released.Phase = protocol.Releasing
		if err := tx.PutRight(released); err != nil {
			return err
		}
		want(tx, "r", 3, false)
		tx.rollback()
		want(tx, "r", 3, true)
		if err := tx.DeleteRight("r"); err != nil {
			return err
		}
		want(tx, "r", 3, false)
		return nil
	})
	view(t, s, func(tx *Tx) error {
		want(tx, "r", 3, false)
		return nil
	})
}
