package allocator

import (
	"testing"

	"go4.org/netipx"
)

func TestView(t *testing.T) {
	v := view("10.0.0.1-10.0.0.9 10.0.1.0/24 2001:db8::/64")
	w := view("10.0.0.5-10.0.1.3 10.0.1.9 10.0.1.255-10.0.2.9 2001:db8::5-2001:db8::7")
	both := view("10.0.0.5-10.0.0.9 10.0.1.0-10.0.1.3 10.0.1.9 10.0.1.255 2001:db8::5-2001:db8::7")
	var none netipx.IPSet
	tests := []struct {
		name      string
		got, want View
		text      string
	}{
		{"of both", v.Intersect(w), both, "10.0.0.5-10.0.0.9,10.0.1.0-10.0.1.3,10.0.1.9-10.0.1.9,10.0.1.255-10.0.1.255,2001:db8::5-2001:db8::7"},
		{"in the other order", w.Intersect(v), both, ""},
		{"with everything", v.Intersect(View{}), v, ""},
		{"of everything", View{}.Intersect(v), v, ""},
		{"of everything with everything", View{}.Intersect(View{}), View{}, "everything"},
		{"with nothing", v.Intersect(view("none")), view("none"), "nothing"},
		{"nil is nothing", NewView(nil), view("none"), "nothing"},
		{"an empty set is nothing", NewView(&none), view("none"), "nothing"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if !tt.got.Equal(tt.want) {
				t.Errorf("got %v; want %v", tt.got, tt.want)
			}
			if tt.text != "" && tt.got.String() != tt.text {
				t.Errorf("text %s; want %s", tt.got, tt.text)
			}
		})
	}
	for _, in := range []string{"10.0.0.1", "10.0.0.9", "10.0.1.255", "2001:db8::"} {
		if !v.Contains(addr(in)) || !(View{}).Contains(addr(in)) || NewView(nil).Contains(addr(in)) {
			t.Errorf("%s: not in %v, or not in everything, or in nothing", in, v)
		}
	}
	for _, out := range []string{"10.0.0.0", "10.0.0.10", "10.0.2.0", "2001:db8:0:1::", "::ffff:10.0.0.1", ""} {
		if v.Contains(addr(out)) {
			t.Errorf("%s is in %v", out, v)
		}
	}
	if v.Equal(View{}) || v.Equal(w) || !(View{}).IsAll() || v.IsAll() || NewView(nil).IsAll() {
		t.Error("different views are equal, or something is everything")
	}
	if (View{}).Contains(addr("::ffff:10.0.0.1")) {
		t.Error("everything contains an IPv4-mapped address, which no pool has")
	}
}
