package store

import (
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

func TestLostStores(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	st, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := Lost{
		Store: "s1", Boot: "b", Noted: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC),
		Pods: []protocol.PodRef{{Namespace: "n", Name: "p", UID: "u"}}, Netns: []Netns{{Path: "/run/netns/x", ID: "4:1"}},
	}
	err = st.Update(t.Context(), func(tx *Tx) error {
		if err := tx.PutLost(Lost{Store: "s2"}); err != nil {
			return err
		}
		return tx.PutLost(want)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Update(t.Context(), func(tx *Tx) error { return tx.PutLost(Lost{}) }); err == nil {
		t.Error("a lost store without an ID is recorded")
	}
	if err := st.Update(t.Context(), func(tx *Tx) error { return tx.DeleteLost("s2") }); err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	if st, err = Open(path, Options{}); err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	err = st.View(func(tx *Tx) error {
		n := 0
		for l, err := range tx.LostStores() {
			if n++; err != nil || !reflect.DeepEqual(l, want) {
				t.Errorf("got %+v, %v; want %+v", l, err, want)
			}
		}
		if n != 1 {
			t.Errorf("%d lost stores are left; want 1", n)
		}
		if _, ok, err := tx.Lost("s2"); ok || err != nil {
			t.Errorf("the one that was deleted is there: %v, %v", ok, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
