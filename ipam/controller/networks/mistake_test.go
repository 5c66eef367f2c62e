package networks

import (
	"strings"
	"testing"
	"time"
)

// TestMistakes: a definition that was to be Tenure's, and cannot be used, says where the mistake is
// and what to do. Of others' definitions nothing is said.
func TestMistakes(t *testing.T) {
	for _, tt := range []struct{ name, config, fault, missing string }{
		{"right", `{"type":"bridge","ipam":{"type":"tenure","pool":"there"}}`, "", ""},
		{"no JSON", `{"type":"bridge","ipam":{"type":"tenure","pool":"there"}`, "config: cannot be read: unexpected end of JSON input; correct", ""},
		{"a string for an object", `{"type":"bridge","ipam":"tenure"}`, "config: cannot be read", ""},
		{"beside plugins", `{"plugins":[{"type":"bridge"}],"ipam":{"type":"tenure","pool":"there"}}`, "ipam: stands beside plugins, where no plugin is given it; move it", ""},
		{"beside plugins that have their own", `{"plugins":[{"type":"bridge","ipam":{"type":"tenure","pool":"there"}}],"ipam":{"type":"tenure","pool":"gone"}}`, "", ""},
		{"another spelling", `{"type":"bridge","ipam":{"type":"Tenure","pool":"there"}}`, `ipam.type: is "Tenure", and no plugin is called so; write "tenure"`, ""},
		{"another spelling in a list", `{"plugins":[{"type":"bridge","ipam":{"type":"TENURE"}}]}`, `plugins[0].ipam.type: is "TENURE"`, ""},
		{"no such pool", `{"type":"bridge","ipam":{"type":"tenure","pool":"gone"}}`, "", "ipam.pool: pool gone does not exist; make the IPPool, or correct the name"},
		{"two of three pools", `{"type":"bridge","ipam":{"type":"tenure","pools":["gone","there","away"]}}`, "", "ipam.pools: pools gone, away do not exist; make the IPPools"},
		{"inline", `{"type":"bridge","ipam":{"type":"tenure","range":"10.0.0.0/24"}}`, "", ""},
		{"an unknown key", `{"type":"bridge","ipam":{"type":"tenure","pool":"gone","pol":1}}`, "ipam.pol: ", ""},
		{"another's, no JSON", `{"type":"bridge","ipam":{"type":"whereabouts"`, "", ""},
		{"another's, beside plugins", `{"plugins":[{"type":"bridge"}],"ipam":{"type":"host-local"}}`, "", ""},
		{"a name that has the word", `{"name":"tenured-land","type":"bridge","ipam":{"type":"Tenured"}}`, "", ""},
		{"none", ``, "", ""},
	} {
		n := Read("ns", "def", time.Time{}, tt.config)
		if !strings.HasPrefix(n.Fault, tt.fault) || (n.Fault == "") != (tt.fault == "") {
			t.Errorf("%s: fault %q; want %q", tt.name, n.Fault, tt.fault)
		}
		if got := n.Missing(func(pool string) bool { return pool == "there" }); !strings.HasPrefix(got, tt.missing) || (got == "") != (tt.missing == "") {
			t.Errorf("%s: missing %q; want %q", tt.name, got, tt.missing)
		}
		if wantOurs := !strings.HasPrefix(tt.name, "another's") && tt.name != "none" && tt.name != "a name that has the word"; (n.Owner == Tenure) != wantOurs {
			t.Errorf("%s: Tenure's: %v; want %v", tt.name, n.Owner == Tenure, wantOurs)
		}
	}
}
