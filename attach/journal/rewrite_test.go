package journal

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenure-ipam/tenure/attach/plan"
)

// changed is the journal of an attachment that lost one network and is to get another.
func changed(t *testing.T, d Dir, n int) *Entry {
	t.Helper()
	e, err := d.Read(key(n))
	check(t, err)
	e.Plan.Steps = append(slices.Clone(e.Plan.Steps), plan.Step{Name: "ns/c", IfName: "net3", Network: "c", List: json.RawMessage(`{}`)})
	e.Steps = append(slices.Clone(e.Steps), Step{})
	e.Steps[1].Undone = true
	return e
}

// TestRewrite: an attachment gets another plan, and its journal goes on from there.
func TestRewrite(t *testing.T) {
	d := Dir{Path: t.TempDir()}
	whole(t, d, 1)
	e := changed(t, d, 1)
	log, err := d.Rewrite(e)
	check(t, err)
	got, err := d.Read(key(1))
	check(t, err)
	if diff := cmp.Diff(e, got); diff != "" {
		t.Fatalf("(-written +read):\n%s", diff)
	}
	if all, part := got.Live(); !slices.Equal(all, []int{0, 2}) || len(part) > 0 {
		t.Errorf("%v and %v are live; want 0 and 2, and nothing in part", all, part)
	}
	check(t, log.Began(3))
	got, err = d.Read(key(1))
	check(t, err)
	if _, part := got.Live(); !slices.Equal(part, []int{3}) {
		t.Errorf("%v are there in part; want 3", part)
	}
	check(t, log.Done(3, []byte(`{"n":3}`)))
	check(t, log.Began(1)) // attached again
	check(t, log.Done(1, []byte(`{"n":1}`)))
	check(t, log.Close())
	got, err = d.Read(key(1))
	check(t, err)
	if !slices.Equal(got.Begun(boot), []int{0, 1, 2, 3}) || !got.Answered || got.Report == nil {
		t.Errorf("%+v; want all four steps to be undone by a DEL, the answer and the report", got)
	}
}

// TestRewriteKilled: whenever the writer ends, there is the old journal or the new one.
func TestRewriteKilled(t *testing.T) {
	defer func() { reached = func(string) {} }()
	for at := 0; ; at++ {
		d := Dir{Path: t.TempDir()}
		whole(t, d, 1)
		old, err := d.Read(key(1))
		check(t, err)
		e, left := changed(t, d, 1), at
		reached = func(string) {
			if left--; left < 0 {
				panic("killed")
			}
		}
		killed := func() (killed bool) {
			defer func() { killed = recover() != nil }()
			log, err := d.Rewrite(e)
			check(t, err)
			check(t, log.Close())
			return false
		}()
		reached = func(string) {}
		got, err := d.Read(key(1))
		check(t, err)
		if !cmp.Equal(got, old) && !cmp.Equal(got, e) {
			t.Fatalf("killed at step %d: %+v; want the old journal or the new one", at, got)
		}
		if !killed {
			if at < 3 {
				t.Errorf("there were %d moments to be killed at; want some", at)
			}
			return
		}
	}
}
