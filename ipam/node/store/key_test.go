package store

import (
	"strings"
	"testing"
)

func TestKeyText(t *testing.T) {
	tests := []struct {
		name string
		key  Key
		text string // "" if the key has none
	}{
		{"usual", Key{"vlan-prod", "0a1b2c", "net1"}, "vlan-prod/0a1b2c/net1"},
		{"beyond ASCII", Key{"réseau 1", "c", "i"}, "réseau 1/c/i"},
		{"no network", Key{"", "c", "i"}, ""},
		{"no container", Key{"n", "", "i"}, ""},
		{"no interface", Key{"n", "c", ""}, ""},
		{"slash", Key{"n", "c/d", "i"}, ""},
		{"newline", Key{"n", "c", "i\n"}, ""},
		{"delete", Key{"n", "c\x7f", "i"}, ""},
		{"not UTF-8", Key{"n\xff", "c", "i"}, ""},
		{"too long", Key{strings.Repeat("n", 1025), "c", "i"}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text, err := tt.key.MarshalText()
			if (err == nil) != (tt.text != "") || string(text) != tt.text {
				t.Fatalf("MarshalText = %q, %v; want %q", text, err, tt.text)
			}
			if err != nil {
				return
			}
			var back Key
			if err := back.UnmarshalText(text); err != nil || back != tt.key {
				t.Errorf("UnmarshalText(%q) = %+v, %v; want %+v", text, back, err, tt.key)
			}
		})
	}
}

func FuzzKey(f *testing.F) {
	f.Add("n/c/i", "n", "c", "i")
	f.Add("n//i", "n/", "c", "i")
	f.Add("a/b/c/d", "", "\x00", "\xff")
	f.Fuzz(func(t *testing.T, text, network, container, ifName string) {
		var k Key
		if err := k.UnmarshalText([]byte(text)); err == nil {
			if back, err := k.MarshalText(); err != nil || string(back) != text {
				t.Errorf("%q reads as %+v, which reads %q, %v", text, k, back, err)
			}
		} else if k != (Key{}) {
			t.Errorf("%q is refused and leaves %+v", text, k)
		}
		want := Key{network, container, ifName}
		written, err := want.MarshalText()
		if err != nil {
			return
		}
		if err := k.UnmarshalText(written); err != nil || k != want {
			t.Errorf("%+v reads %q, which reads %+v, %v", want, written, k, err)
		}
	})
}
