package moving

import "testing"

// TestOneOfThem: of one thing a sentence does not speak as of several.
func TestOneOfThem(t *testing.T) {
	for _, tt := range []struct {
		pods, addresses int
		want            string
	}{
		{0, 0, "no running pod has an address of it"},
		{1, 1, "1 running pod has 1 address of it, and keeps what it has"},
		{1, 2, "1 running pod has 2 addresses of it, and keeps what it has"},
		{8, 16, "8 running pods have 16 addresses of it, and keep them"},
	} {
		if got := (moveSegment{Pods: tt.pods, Addresses: tt.addresses}).podsKeep(); got != tt.want {
			t.Errorf("%d pods and %d addresses: %q; want %q", tt.pods, tt.addresses, got, tt.want)
		}
	}
}
