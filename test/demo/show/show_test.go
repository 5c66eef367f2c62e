package show

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

// TestOnward: the program that goes on with a demo counts from where the one before it has ended.
func TestOnward(t *testing.T) {
	want := Options{Keep: true, Scenes: 4, Facts: 11, Elapsed: 2500 * time.Millisecond}
	var got Options
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	got.Flags(flags)
	got.Onward(flags)
	if err := flags.Parse(want.Args()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	s := New(got)
	if err := s.Perform(func() { s.number++; s.Must(errors.New("broken")) }); err == nil || err.Error() != "scene 5: broken" {
		t.Errorf("the first scene fails with %v", err)
	}
}
