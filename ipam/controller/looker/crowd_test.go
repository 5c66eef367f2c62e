package looker

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/foreign"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// TestLetDefinitionOfManyExcludes: a definition of whereabouts' whose excludes make more ranges
// than a fence has room for holds up no pool whose owner lets it.
func TestLetDefinitionOfManyExcludes(t *testing.T) {
	c := newCluster()
	var exclude []string
	for i := range maxFence + 1 {
		exclude = append(exclude, fmt.Sprintf(`"10.0.%d.%d/32"`, i/128, i%128*2))
	}
	c.more = []string{fmt.Sprintf(`{"cniVersion":"1.0.0","name":"x","type":"macvlan","ipam":{"type":"whereabouts","range":"10.0.0.0/16","exclude":[%s]}}`, strings.Join(exclude, ","))}
	pool := lan()
	pool.Status.Leasing, pool.Status.Withheld = "", nil
	c.pools, c.record = []v1alpha1.IPPool{pool}, map[string]any{"range": "10.0.0.0/16"}
	c.pools[0].Spec.ShareWith = []string{"ns/more-0"}
	if v := c.look(t); strings.Contains(v.Why, "cannot be kept") || len(v.Fence) > maxFence {
		t.Errorf("in spec.shareWith: stage %d, %q", v.Stage, v.Why)
	}
}

// TestManyLongDirectories: what definitions make a node be asked for has a bound. What is beyond
// that counts as unread.
func TestManyLongDirectories(t *testing.T) {
	for _, tt := range []struct {
		name      string
		length, n int
		want      string
	}{
		{"names that no directory has", 4000, 300, "too long"},
		{"as many as anybody likes", 900, 600, "too many definitions"},
	} {
		c := newCluster()
		c.pools, c.pods = []v1alpha1.IPPool{lan()}, []*corev1.Pod{showing("p", "10.0.1.2")}
		for i := range tt.n {
			c.more = append(c.more, fmt.Sprintf(`{"cniVersion":"1.0.0","name":"x","type":"macvlan","ipam":{"type":"tenure","pool":"lan","dataDir":"/%d%s"}}`, i, strings.Repeat("d", tt.length)))
		}
		c.answer = func(q protocol.Query) protocol.Report { return protocol.Report{ID: q.ID, Running: []protocol.UID{"p"}} }
		v := c.look(t)
		bytes := 0
		for _, q := range c.asked {
			bytes += len(q.String())
		}
		if v.Stage != foreign.StageReports || !strings.Contains(v.Why, tt.want) || bytes > mostAsked+len(c.asked)<<10 {
			t.Errorf("%s: %d questions of %d KiB; stage %d, %q", tt.name, len(c.asked), bytes>>10, v.Stage, v.Why)
		}
	}
}
