package show

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWrap(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		width      int
		want       []string
	}{
		{"fits", "a pool", 10, []string{"a pool"}},
		{"breaks at spaces", "pods come and go", 9, []string{"pods come", "and go"}},
		{"a word that is too long stays whole", "see fd00:77::8280/112", 8, []string{"see", "fd00:77::8280/112"}},
		{"counts characters, not bytes", "✓ ✓ ✓", 3, []string{"✓ ✓", "✓"}},
		{"nothing", "", 5, []string{""}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, wrap(tt.text, tt.width)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestTable(t *testing.T) {
	var out strings.Builder
	s := &Screen{out: &out, width: usualWidth, blank: true}
	s.Table([]string{"POD", "SANDBOX", "NODE"}, []string{"web-1", "3381e862…", "a"}, []string{"w", "x", "b"})
	want := `
  POD     SANDBOX     NODE
  web-1   3381e862…   a
  w       x           b

`
	if diff := cmp.Diff(want[1:], out.String()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
