package foreign

import "testing"

func TestSwitch(t *testing.T) {
	for _, tt := range []struct{ name, config, want string }{
		{"single", `{"type": "macvlan", "ipam": { "type" : "whereabouts",  "range": "10.0.0.0/24" } }`, `{"type": "macvlan", "ipam": { "type" : "tenure",  "range": "10.0.0.0/24" } }`},
		{"a list", `{"plugins":[{"type":"whereabouts"},{"type":"bridge","ipam":{"range":"whereabouts","type":"whereabouts"}}],"ipam":1}`, `{"plugins":[{"type":"whereabouts"},{"type":"bridge","ipam":{"range":"whereabouts","type":"tenure"}}],"ipam":1}`},
		{"deeper keys of that name", `{"ipam":{"x":{"type":"whereabouts"},"l":["type","whereabouts"],"type":"whereabouts"}}`, `{"ipam":{"x":{"type":"whereabouts"},"l":["type","whereabouts"],"type":"tenure"}}`},
		{"another IPAM", `{"ipam":{"type":"static"}}`, ""},
		{"escaped", `{"ipam":{"type":"where\u0061bouts"}}`, ""},
		{"no JSON", `{"ipam":{"type":"whereabouts"}`, ""},
	} {
		got, err := Switch(tt.config, "whereabouts", "tenure")
		if got != tt.want || (err != nil) != (tt.want == "") {
			t.Errorf("%s: got %s, %v; want %s", tt.name, got, err, tt.want)
		}
	}
}

// FuzzSwitch: what is switched differs in nothing but the word, and back is the same text.
func FuzzSwitch(f *testing.F) {
	f.Add(`{"type":"macvlan","ipam":{"type":"whereabouts","range":"10.0.0.0/24"}}`)
	f.Fuzz(func(t *testing.T, config string) {
		next, err := Switch(config, "whereabouts", "tenure-of-fuzz")
		if err != nil {
			return
		}
		if back, err := Switch(next, "tenure-of-fuzz", "whereabouts"); err != nil || back != config {
			t.Errorf("%q becomes %q and %q, %v", config, next, back, err)
		}
	})
}
