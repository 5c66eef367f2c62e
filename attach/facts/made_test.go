package facts

import "testing"

func TestMadeBefore(t *testing.T) {
	for _, tt := range []struct {
		m, other Made
		want     bool
	}{
		{Made{"now", 1}, Made{"now", 2}, true}, {Made{"now", 2}, Made{"now", 1}, false}, {Made{"now", 1}, Made{"now", 1}, false},
		{Made{"earlier", 9}, Made{"now", 1}, true}, {Made{"now", 1}, Made{"earlier", 9}, false},
		{Made{"a", 1}, Made{"b", 2}, false}, {Made{}, Made{"now", 1}, false}, {Made{}, Made{}, false}, {Made{"now", 1}, Made{}, false},
	} {
		if got := tt.m.Before(tt.other, "now"); got != tt.want {
			t.Errorf("%+v before %+v: %v; want %v", tt.m, tt.other, got, tt.want)
		}
	}
	if (Made{"a", 1}).Before(Made{}, "") {
		t.Error("what does not say when it was made is taken for newer where the boot is unknown")
	}
}
