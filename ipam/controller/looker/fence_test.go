package looker

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/foreign"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// TestFenceLetsSlices: where whereabouts parts the ranges of another segment among the nodes, each
// node has an IPPool of its own there. These go on to give addresses.
func TestFenceLetsSlices(t *testing.T) {
	const blue = `{"type":"whereabouts","range":"10.0.0.0/16","network_name":"blue","node_slice_size":"/24"}`
	const whole = `{"type":"whereabouts","range":"10.0.0.0/16","network_name":"blue"}`
	const own = `{"type":"tenure","pool":"lan","network_name":"blue-lan","range":"10.0.0.0/16"}`
	read := func(name, ipam, domain string) foreign.Definition {
		config := fmt.Sprintf(`{"name":%q,"type":"macvlan","ipam":%s}`, name, ipam)
		return foreign.ReadDefinition("ns", name, config, map[string]string{v1alpha1.AnnotationDomain: domain})
	}
	pools := []v1alpha1.IPPool{lan()}
	shape, err := poolspec.ParsePool(kube.SpecText(&pools[0]))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, ipam, domain, share string
		object, covers            string
		fenced                    bool
	}{
		{"a slice", blue, "vlan20", "", "blue-n1-10.0.3.0-24", "10.0.3.0/24", false},
		{"a slice of another network", blue, "vlan20", "", "red-n1-10.0.3.0-24", "10.0.3.0/24", true},
		{"a slice of the pool's network", blue, "vlan20", "", "blue-lan-n1-10.0.3.0-24", "10.0.3.0/24", true},
		{"a wider range", blue, "vlan20", "", "blue-n1-10.0.0.0-15", "10.0.0.0/15", true},
		{"a slice of the pool's segment, which gives nothing of the pool", blue, "", "", "blue-n1-10.0.3.0-24", "10.0.3.0/24", false},
		{"a slice that a person lets", blue, "", "ns/theirs", "blue-n1-10.0.3.0-24", "10.0.3.0/24", false},
		{"a range that has no slices", whole, "vlan20", "", "blue-n1-10.0.3.0-24", "10.0.3.0/24", true},
	} {
		p := &pool{Pool: foreign.Pool{Name: "lan", Whole: shape, ShareWith: []string{tt.share}}}
		l := &look{served: true, objects: []object{{tt.object, netip.MustParsePrefix(tt.covers)}}}
		l.facts.Definitions = []foreign.Definition{read("net", own, ""), read("theirs", tt.ipam, tt.domain)}
		if all, _ := l.fence(p, nil); slices.Contains(all, tt.object) != tt.fenced {
			t.Errorf("%s: it fences %q; want %s among them: %v", tt.name, all, tt.object, tt.fenced)
		}
		lets := tt.domain != "" || tt.share != "" // who writes one into the pool's segment lifts nothing
		if all, _ := l.fence(p, []string{tt.object}); slices.Contains(all, tt.object) != (tt.fenced || !lets) {
			t.Errorf("%s, fenced before: it fences %q; want %s among them: %v", tt.name, all, tt.object, tt.fenced || !lets)
		}
	}
}

// TestFenceOfANetworkNameThatIsGone: the section of a definition is written anew for the pool, as
// the condition says, and its network_name is gone. Reservations of that name are fenced all the
// same: whereabouts goes by these alone, if the definition comes back.
func TestFenceOfANetworkNameThatIsGone(t *testing.T) {
	was := definition("net", `{"name":"net","type":"macvlan","ipam":{"type":"whereabouts","range":"10.0.0.0/16","network_name":"red"}}`)
	is := definition("net", `{"name":"net","type":"macvlan","ipam":{"type":"tenure","pool":"lan"}}`)
	for _, fenced := range [][]string{nil, {"red-10.0.0.0/16"}} { // from before, if the controller was restarted
		c := newCluster()
		c.names = newNames(c.now)
		c.pools, c.record, c.object = []v1alpha1.IPPool{lan()}, map[string]any{"range": "10.0.0.0/16"}, "red-10.0.0.0-16"
		if c.pools[0].Status.Fenced = fenced; fenced == nil {
			c.names.edited(&was, &is, c.now)
		}
		if got, want := c.look(t).Fence, []string{"10.0.0.0/16", "red-10.0.0.0-16", "red-10.0.0.0/16"}; !slices.Equal(got, want) {
			t.Errorf("fenced before: %q: it fences %q; want %q", fenced, got, want)
		}
		// Another network has that name.
		c.more, c.domains = []string{`{"name":"x","type":"macvlan","ipam":{"type":"whereabouts","range":"10.0.0.0/16","network_name":"red"}}`}, "vlan20"
		if got := c.look(t).Fence; !slices.Equal(got, []string{"10.0.0.0/16"}) {
			t.Errorf("fenced before: %q, and another network has the name: it fences %q", fenced, got)
		}
	}
	c := newCluster() // it has no IPPool yet
	c.names = newNames(c.now)
	c.pools, c.record = []v1alpha1.IPPool{lan()}, map[string]any{"range": "10.9.0.0/16"}
	c.names.edited(&was, &is, c.now)
	if got, want := c.look(t).Fence, []string{"10.0.0.0/16", "red-10.0.0.0-16", "red-10.0.0.0/16"}; !slices.Equal(got, want) {
		t.Errorf("without an IPPool: it fences %q; want %q", got, want)
	}
	// Or whereabouts never ran it.
	for _, ipam := range []string{`"host-local","subnet":"10.0.0.0/16"`, `"tenure","mode":"local"`} {
		other := definition("net", fmt.Sprintf(`{"name":"net","type":"macvlan","ipam":{"type":%s,"range":"10.0.0.0/16","network_name":"red"}}`, ipam))
		c = newCluster()
		c.names = newNames(c.now)
		c.pools, c.record = []v1alpha1.IPPool{lan()}, map[string]any{"range": "10.9.0.0/16"}
		c.names.edited(&other, &is, c.now)
		if got := c.look(t).Fence; len(got) > 0 {
			t.Errorf("of a definition of %s it fences %q", ipam, got)
		}
	}
	c = newCluster() // or its definition is a file on the nodes
	c.pools, c.record, c.object = []v1alpha1.IPPool{lan()}, map[string]any{"range": "10.0.0.0/16"}, "red-10.0.0.0-16"
	if got := c.look(t).Fence; slices.Contains(got, "red-10.0.0.0/16") {
		t.Errorf("a network that no definition had: it fences %q", got)
	}
}

// TestFenceSparesALivingNetwork: an IPPool that whereabouts has left of another network's fences
// that network nothing else: its definition goes on, and may get a wider range.
func TestFenceSparesALivingNetwork(t *testing.T) {
	for _, share := range []string{"", "ns/more-0"} {
		c := newCluster()
		c.pools, c.record, c.object = []v1alpha1.IPPool{lan()}, map[string]any{"range": "10.0.1.0/24"}, "red-10.0.1.0-24"
		c.more = []string{`{"name":"x","type":"macvlan","ipam":{"type":"whereabouts","range":"10.0.0.0/24","network_name":"red"}}`}
		if c.domains = "vlan20"; share != "" {
			c.domains, c.pools[0].Spec.ShareWith = "", []string{share}
		}
		if got, want := c.look(t).Fence, []string{"10.0.0.0/16", "red-10.0.1.0-24"}; !slices.Equal(got, want) {
			t.Errorf("in spec.shareWith: %q: it fences %q; want %q", share, got, want)
		}
	}
}

// TestOwnerLetsWhatIsFenced: of an open pool's fence a definition that is whereabouts' again gets
// what is its own, once the pool's owner names it in spec.shareWith; not because of what its own
// annotation says.
func TestOwnerLetsWhatIsFenced(t *testing.T) {
	const blue = `{"name":"x","type":"macvlan","ipam":{"type":"whereabouts","range":"10.0.0.0/17","network_name":"blue","node_slice_size":"/24"}}`
	const plain = `{"name":"x","type":"macvlan","ipam":{"type":"whereabouts","range":"10.0.0.0/17"}}`
	for _, tt := range []struct {
		config     string
		had, lifts []string
	}{
		{plain, []string{"10.0.0.0-17", "10.0.0.0/16", "z"}, []string{"10.0.128.0/17", "z"}},
		{blue, []string{"blue-n1-10.0.3.0-24", "blue-lan-n1-10.0.3.0-24", "blue-10.0.0.0/16", "z"}, []string{"blue-lan-n1-10.0.3.0-24", "blue-10.0.128.0/17", "z"}},
	} {
		for share, want := range map[string][]string{"": tt.had, "ns/more-0": tt.lifts} {
			c := newCluster()
			p := openLan(c.now)
			p.Status.Fenced, p.Spec.ShareWith, p.Spec.Domain = tt.had, []string{share}, "blue-lan"
			c.pools, c.more, c.domains = []v1alpha1.IPPool{p}, []string{tt.config}, "vlan20"
			for range 2 {
				if got := c.look(t).Fence; !slices.Equal(got, want) {
					t.Errorf("%s, in spec.shareWith: %q: it fences %q; want %q", tt.config, share, got, want)
				}
				c.pools[0].Status.Fenced = want
			}
		}
	}
}

// fences looks some times, and writes what a look fences into the pool's status as the reconciler
// does. It returns at how many looks the pool was past its fence.
func (c *cluster) fences(t *testing.T, looks int, every time.Duration) (past int) {
	t.Helper()
	for range looks {
		v, st := c.look(t), &c.pools[0].Status
		if st.FencedSince == nil || v.FenceIsNew {
			st.FencedSince = new(metav1.NewTime(c.now))
		}
		st.Fenced = v.Fence
		if v.Stage > foreign.StageFence {
			past++
		}
		c.now = c.now.Add(every)
	}
	return past
}

// TestOwnerOfAFenceHasTheLastWord: what others write again and again, or what they have written
// under a name that is too long, keeps no pool from being fenced, once its owner names the
// definition in spec.shareWith. Before, the reason tells what to name.
func TestOwnerOfAFenceHasTheLastWord(t *testing.T) {
	for _, share := range []string{"ns/more-0", ""} {
		c := newCluster()
		c.names = newNames(c.now)
		p := lan()
		p.Spec.ShareWith, p.Status.Fenced = []string{share}, []string{"z"}
		c.pools, c.record = []v1alpha1.IPPool{p}, map[string]any{"range": "10.0.0.0/16"}
		long := definition("more-0", `{"name":"x","type":"macvlan","ipam":{"type":"whereabouts","range":"10.0.0.0/24","network_name":"`+strings.Repeat("a", 245)+`"}}`)
		c.names.removed(&long, c.now)
		past := 0
		for i := range 20 {
			c.more = []string{fmt.Sprintf(`{"name":"x","type":"macvlan","ipam":{"type":"tenure","pool":"lan","range":"10.0.0.0/24","network_name":"x%d"}}`, i%5)}
			past += c.fences(t, 2, 2*time.Second)
		}
		if past > 30 != (share != "") {
			t.Errorf("in spec.shareWith: %q: past the fence in %d of 40 looks", share, past)
		}
		c.more = []string{`{"name":"x","type":"macvlan","ipam":{"type":"tenure","pool":"lan","range":"10.0.0.0/24","network_name":"y"}}`}
		if v := c.look(t); share == "" && (v.Stage != foreign.StageFence || !strings.Contains(v.Why, "by y-10.0.0.0-24: ")) {
			t.Errorf("it waits at stage %d, %q; want what is new, and what to do", v.Stage, v.Why)
		}
	}
}

// TestOthersWrittenAgainAndAgain: nor does a definition of whereabouts' of another network, which
// has no network_name, as the pool's reservations have none: what it gave lately is left out.
func TestOthersWrittenAgainAndAgain(t *testing.T) {
	for _, domain := range []string{"vlan20", ""} {
		c := newCluster()
		c.names = newNames(c.now)
		p := lan()
		p.Spec.ShareWith = []string{"ns/more-0"}
		c.pools, c.record, c.domains = []v1alpha1.IPPool{p}, map[string]any{"range": "10.0.0.0/16"}, domain
		past := 0
		for i := range 40 {
			is := definition("more-0", fmt.Sprintf(`{"name":"x","type":"macvlan","ipam":{"type":"whereabouts","range":"10.0.1.0/24","range_start":"10.0.1.%d"}}`, i+1))
			if i > 0 {
				was := definition("more-0", c.more[0])
				c.names.edited(&was, &is, c.now)
			}
			c.more = []string{is.Spec.Config}
			past += c.fences(t, 2, 2*time.Second)
		}
		if past < 50 {
			t.Errorf("domain %q: past the fence in %d of 80 looks", domain, past)
		}
		if got := c.look(t).Fence; !slices.Contains(got, "10.0.128.0/17") || !slices.Contains(got, "10.0.0.0/24") {
			t.Errorf("domain %q: it fences %q; want all but 10.0.1.0/24", domain, got)
		}
	}
	for _, was := range []string{
		`{"name":"x","type":"macvlan","ipam":{"type":"whereabouts","range":"10.0.0.0/16"}}`,
		`{"name":"x","type":"macvlan","ipam":{"type":"whereabouts"}}`, // its range is in a file
		`{"name":"x","type":"macvlan","ipam":{"type":"host-local","subnet":"10.0.0.0/16"}}`,
	} {
		c := newCluster() // it is elsewhere now
		c.names = newNames(c.now)
		is := definition("more-0", `{"name":"x","type":"macvlan","ipam":{"type":"whereabouts","range":"10.5.0.0/16"}}`)
		old := definition("more-0", was)
		c.names.edited(&old, &is, c.now)
		c.pools, c.record, c.more = []v1alpha1.IPPool{lan()}, map[string]any{"range": "10.0.0.0/16"}, []string{is.Spec.Config}
		if got := c.look(t).Fence; !slices.Contains(got, "10.0.0.0/16") {
			t.Errorf("what was %s: the pool fences %q; want all of its range", was, got)
		}
	}
}

// TestAdded: what is fenced in other parts is not new.
func TestAdded(t *testing.T) {
	had := []string{"10.0.0.0/17", "10.0.128.0/17", "red-10.0.0.0-16", "red-fd00::/64"}
	fence := []string{"10.0.0.0/16", "10.0.0.0/15", "red-10.0.0.0/17", "red-10.0.0.0-16", "red-fd00::/65", "blue-10.0.0.0-16"}
	if got, want := added(had, fence), []string{"10.0.0.0/15", "red-10.0.0.0/17", "blue-10.0.0.0-16"}; !slices.Equal(got, want) {
		t.Errorf("new: %q; want %q", got, want)
	}
}

// TestDefinitionsThatNobodySelectsHoldNothingUp: each new definition of the pool has its own
// network_name, and the fence grows by it. A pod that was bound before, and hangs, is waited for
// ten minutes all the same, and no longer.
func TestDefinitionsThatNobodySelectsHoldNothingUp(t *testing.T) {
	c := newCluster()
	p := lan()
	p.Status.Withheld, p.Status.Leasing = nil, v1alpha1.LeasingClosed
	c.pools, c.record = []v1alpha1.IPPool{p}, map[string]any{"range": "10.0.0.0/16"}
	hangs := showing("hangs", "10.0.0.7")
	delete(hangs.Annotations, npwg.AnnotationStatus)
	hangs.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(c.now.Add(-time.Hour))}}
	c.pods = []*corev1.Pod{hangs}
	c.answer = func(q protocol.Query) protocol.Report {
		return protocol.Report{ID: q.ID, Running: []protocol.UID{"hangs"}}
	}
	for i := range 3 {
		c.more = append(c.more, fmt.Sprintf(`{"name":"x","type":"macvlan","ipam":{"type":"tenure","pool":"lan","range":"10.0.0.0/24","network_name":"x%d"}}`, i))
		c.fences(t, 24, 10*time.Second)
		if v := c.look(t); v.Clear() != (i == 2) {
			t.Errorf("after %d minutes: stage %d, %q", 4*(i+1), v.Stage, v.Why)
		}
	}
}
