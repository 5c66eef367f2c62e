package store

import (
	"path/filepath"
	"reflect"
	"testing"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

func TestHistory(t *testing.T) {
	st, err := Open(filepath.Join(t.TempDir(), "store.db"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	read := func() (h protocol.History) {
		t.Helper()
		err := st.View(func(tx *Tx) error {
			var err error
			h, err = tx.History()
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	if h := read(); !reflect.DeepEqual(h, protocol.History{}) {
		t.Errorf("a new store has %+v", h)
	}
	want := protocol.History{Registrations: 3, Objects: 7, Registration: "u", Writes: 2, Epoch: "w", Restored: &protocol.Restoration{Back: true, Epoch: "v"}}
	if err := st.Update(t.Context(), func(tx *Tx) error { return tx.PutHistory(want) }); err != nil {
		t.Fatal(err)
	}
	if got := read(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v; want %+v", got, want)
	}
}
