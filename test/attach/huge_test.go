package attach_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestHugeAnnotations (A1): whoever makes pods must not fill the runtime's log, which gets the
// error of every try. An annotation may have 256 KiB.
func TestHugeAnnotations(t *testing.T) {
	n := newNode(t)
	n.define("ns", "a", n.recorder("a", nil))
	n.define("ns", "large", n.recorder("large", map[string]any{"padding": strings.Repeat("x", 500<<10)}))
	var many strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&many, "n%x,", i)
	}
	list := func(of string) string { return of + strings.Repeat(","+of, 250_000/(len(of)+1)-1) }
	for name, tt := range map[string]struct{ annotation, invalid, want string }{
		"of one that does not exist":  {list("x")[:2*1024-1], "", "element 1: network ns/x: the agent says nothing of it"},
		"of many":                     {many.String() + "a", "", "and 984 more"},
		"of nothing":                  {strings.Repeat(",", 250_000), "Fail", "no name of a definition"},
		"of one that is long":         {strings.Repeat("x", 250_000) + "/x", "Fail", "no name of a namespace"},
		"an address that is none":     {`[{"name":"a","ips":["` + strings.Repeat("1", 250_000) + `"]}]`, "Fail", "is no IPv4"},
		"addresses that are none":     {`[{"name":"a","ips":["` + list(`","`) + `"]}]`, "Fail", "is no IPv4"},
		"a value of another type":     {`[{"name":"a","mac":[` + list("1") + `]}]`, "Fail", "is not a string"},
		"default routes":              {`[` + list(`{"name":"a","default-route":[]}`) + `]`, "Fail", "more; at most one may have it"},
		"of what is large":            {strings.Repeat("large,", 1000) + "a", "", "the configurations of what it selects have more than 8388608 bytes"},
		"of what does exist":          {list("a"), "", "it selects 125000 networks; a pod may select 1024"},
		"of what does exist, invalid": {list("a") + ",A", "Ignore", "it selects 125001 networks; a pod may select 1024"},
	} {
		t.Run(name, func(t *testing.T) {
			n.t = t
			n.selects("p", tt.annotation)
			s := pod("p")
			s.config = map[string]any{"invalidAnnotation": tt.invalid}
			f := n.fails("ADD", s, tt.want)
			if size := len(f.Msg) + len(f.Details); size > 32<<10 {
				t.Errorf("the error has %d bytes; want a message", size)
			}
			n.called()
		})
	}
}
