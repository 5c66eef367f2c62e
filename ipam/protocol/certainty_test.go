package protocol

import (
	"testing"
	"time"
)

func TestCertainty(t *testing.T) {
	var c Certainty
	want := func(when string, sure bool) {
		t.Helper()
		if c.Sure() != sure {
			t.Errorf("%s: sure %v; want %v", when, c.Sure(), sure)
		}
	}
	want("at the start", false)
	c = c.Listed(time.Second)
	want("after the first list", true)
	c = c.Doubted(time.Minute)
	want("after a create without an answer", false)
	c = c.Listed(time.Minute + LooksLast - 1)
	want("after a list that it may have come behind", false)
	c = c.Doubted(2 * time.Minute).Listed(time.Minute + LooksLast)
	want("after a list for an earlier one", false)
	c = c.Listed(2*time.Minute + LooksLast)
	want("when it does not come any more", true)
}
