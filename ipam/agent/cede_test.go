package agent

import (
	"slices"
	"testing"
)

// TestCessions: from before an address comes free until a worker has ceded it, its
// lease gives nothing; what comes free meanwhile makes the worker go round again.
func TestCessions(t *testing.T) {
	var c cessions
	pending := func(when string, want bool) {
		t.Helper()
		if got := c.pending("l"); got != want {
			t.Errorf("%s: pending = %v; want %v", when, got, want)
		}
	}
	pending("at first", false)
	c.expect([]string{"l", "m"})
	pending("a release is under way", true)
	if got := c.done([]string{"l", "m"}); !slices.Equal(got, []string{"l", "m"}) {
		t.Errorf("%v want a worker; want l and m", got)
	}
	if !c.next("l") {
		t.Error("nothing to cede after a release")
	}
	c.expect([]string{"l"})
	if got := c.done([]string{"l"}); len(got) > 0 {
		t.Errorf("%v want a second worker", got)
	}
	c.expect([]string{"l"}) // its transaction is not done yet
	if !c.next("l") {
		t.Error("what came free while the worker ceded is not ceded")
	}
	if c.next("l") {
		t.Error("the worker does not end")
	}
	pending("a release is under way again", true)
	if got := c.done([]string{"l"}); !slices.Equal(got, []string{"l"}) {
		t.Errorf("%v want a worker; want l", got)
	}
	if !c.next("l") || c.next("l") {
		t.Error("the second worker cedes not exactly once")
	}
	pending("in the end", false)
}
