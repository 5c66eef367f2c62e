// Package plainjsontest helps to test what types' JSON is written and read by hand:
// it has values in which nothing is missing, so that a member that is added to a type
// and forgotten in its codec fails a test.
package plainjsontest

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// Full returns a T with every member set that encoding/json writes, no two alike,
// down to the ends of its lists, maps and pointers.
func Full[T any](t testing.TB) T {
	t.Helper()
	var v T
	f := filler{t: t}
	f.fill(reflect.ValueOf(&v).Elem())
	return v
}

type filler struct {
	t testing.TB
	n int
}

func (f *filler) fill(v reflect.Value) {
	f.n++
	if v.Type() == reflect.TypeFor[json.RawMessage]() {
		v.SetBytes(fmt.Appendf(nil, `{"n":%d}`, f.n))
		return
	}
	if text, ok := reflect.TypeAssert[encoding.TextUnmarshaler](v.Addr()); ok {
		if err := text.UnmarshalText(fmt.Appendf(nil, "192.0.2.%d", f.n)); err != nil {
			f.t.Fatalf("a %v: %v", v.Type(), err)
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if tag := v.Type().Field(i).Tag.Get("json"); tag != "-" {
				f.fill(v.Field(i))
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		f.fillAll(v)
	case reflect.Array:
		f.fillAll(v)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range 2 {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			f.fill(key)
			f.fill(value)
			v.SetMapIndex(key, value)
		}
	case reflect.String:
		v.SetString(fmt.Sprintf("s%d \"é\"", f.n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint8:
		v.SetUint(uint64(f.n % 256))
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(f.n))
	default:
		f.t.Fatalf("plainjsontest cannot fill a %v", v.Type())
	}
}

// fillAll fills the items of v.
func (f *filler) fillAll(v reflect.Value) {
	for i := range v.Len() {
		f.fill(v.Index(i))
	}
}

// Written checks that text, which was written by hand, is one line and is to
// encoding/json what v is.
func Written[T any](t testing.TB, text []byte, v T) {
	t.Helper()
	if bytes.ContainsAny(text, "\r\n") {
		t.Errorf("a line break in %s", text)
	}
	var got T
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&got); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	Same(t, got, v)
}

// Same compares values; what is empty may be nil or not.
func Same[T any](t testing.TB, got, want T) {
	t.Helper()
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); d != "" {
		t.Errorf("%T (-want +got):\n%s", got, d)
	}
}
