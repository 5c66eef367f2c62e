package workloads

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenure-ipam/tenure/api/workload"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
)

func ref(kind, name string, uid types.UID) metav1.OwnerReference {
	version := map[string]string{"StatefulSet": "apps/v1", "Pod": "v1"}[kind]
	return metav1.OwnerReference{APIVersion: version, Kind: kind, Name: name, UID: uid}
}

// words writes a plan: what is created with its wish, changed with its owners, deleted, said.
func (p plan) words() (all []string) {
	for _, w := range p.create {
		all = append(all, strings.TrimSpace("create "+w.name+" "+w.requested))
	}
	for _, c := range p.change {
		owner := "nobody"
		if len(c.owners) > 0 {
			owner = fmt.Sprintf("%s %s %s", c.owners[0].Kind, c.owners[0].Name, c.owners[0].UID)
		}
		all = append(all, "change "+c.claim.name+" to "+owner)
	}
	for _, c := range p.remove {
		all = append(all, "delete "+c.name)
	}
	for _, f := range p.faults {
		all = append(all, f.reason+" "+f.message)
	}
	return all
}

func TestDecide(t *testing.T) {
	const deleted, scaled, both = "whenDeleted=Delete", "whenScaled=Delete", "whenDeleted=Delete,whenScaled=Delete"
	// c is a claim of the set web as the reconciler makes it.
	c := func(name string, owners ...metav1.OwnerReference) claim {
		return claim{name: name, network: "net", set: "web", owners: owners}
	}
	with := func(c claim, change func(*claim)) claim {
		change(&c)
		return c
	}
	web, old := ref("StatefulSet", "web", "web-uid"), ref("StatefulSet", "web", "old-uid")
	for name, tt := range map[string]struct {
		first, count     int
		claims, retained string
		requested        string
		there            []claim
		pods             map[int]types.UID
		want             []string
	}{
		"new":                    {count: 2, want: []string{"create web-0.lan", "create web-1.lan"}},
		"two networks":           {count: 1, claims: "lan, dmz@net2", want: []string{"create web-0.lan", "create web-0.dmz.net2"}},
		"ordinals.start":         {first: 5, count: 2, want: []string{"create web-5.lan", "create web-6.lan"}},
		"a range":                {first: 5, count: 2, requested: "10.0.0.7-10.0.0.9,fd00::1-fd00::2", want: []string{"create web-5.lan 10.0.0.7,fd00::1", "create web-6.lan 10.0.0.8,fd00::2"}},
		"zero":                   {count: 0},
		"as it is":               {count: 1, there: []claim{c("web-0.lan")}},
		"scaled up":              {count: 2, there: []claim{c("web-0.lan")}, want: []string{"create web-1.lan"}},
		"scaled down, kept":      {count: 1, there: []claim{c("web-0.lan"), c("web-1.lan")}},
		"down to zero, and kept": {count: 0, there: []claim{c("web-0.lan"), c("web-1.lan")}},
		"start raised, kept":     {first: 1, count: 1, there: []claim{c("web-0.lan"), c("web-1.lan")}},
		"scaled down, with a pod": {count: 1, retained: scaled, there: []claim{c("web-0.lan"), c("web-1.lan")}, pods: map[int]types.UID{1: "p1"},
			want: []string{"change web-1.lan to Pod web-1 p1"}},
		"scaled down, the pod is gone": {count: 1, retained: scaled, there: []claim{c("web-0.lan"), c("web-1.lan")}, want: []string{"delete web-1.lan"}},
		"start raised, and its pod is gone": {first: 1, count: 1, retained: scaled, there: []claim{c("web-0.lan"), c("web-1.lan")},
			want: []string{"delete web-0.lan"}},
		"scaled down, owned by its pod": {count: 1, retained: scaled, there: []claim{c("web-0.lan"), c("web-1.lan", ref("Pod", "web-1", "p1"))}},
		"scaled up before the pod went": {count: 2, retained: scaled, there: []claim{c("web-0.lan"), c("web-1.lan", ref("Pod", "web-1", "p1"))},
			want: []string{"change web-1.lan to nobody"}},
		"kept after all": {count: 1, there: []claim{c("web-0.lan"), c("web-1.lan", ref("Pod", "web-1", "p1"))}, want: []string{"change web-1.lan to nobody"}},
		"an element removed, and scaled": {count: 1, retained: scaled, there: []claim{c("web-0.lan"), c("web-0.dmz"), c("web-1.dmz")},
			want: []string{"delete web-1.dmz"}},
		"deleted with the set": {count: 1, retained: deleted, there: []claim{c("web-0.lan"), c("web-1.lan")},
			want: []string{"change web-1.lan to StatefulSet web web-uid", "change web-0.lan to StatefulSet web web-uid"}},
		"the set's already":         {count: 1, retained: deleted, there: []claim{c("web-0.lan", web)}},
		"not with the set any more": {count: 1, there: []claim{c("web-0.lan", web)}, want: []string{"change web-0.lan to nobody"}},
		"both": {count: 1, retained: both, there: []claim{c("web-0.lan", web), c("web-1.lan", web)}, pods: map[int]types.UID{1: "p1"},
			want: []string{"change web-1.lan to Pod web-1 p1"}},
		"made again, and kept":      {count: 1, there: []claim{c("web-0.lan")}},
		"of the set that was there": {count: 1, retained: deleted, there: []claim{c("web-0.lan", old)}},
		"being deleted":             {count: 1, there: []claim{with(c("web-0.lan"), func(c *claim) { c.deleting = true })}},
		"somebody else's": {count: 1, retained: both, there: []claim{c("web-0.lan", ref("Database", "main", "x"))},
			want: []string{"ClaimTaken claim web-0.lan is left alone: it belongs to Database main"}},
		"somebody else's, and out of range": {count: 0, retained: both, there: []claim{c("web-0.lan", ref("Database", "main", "x"))},
			want: []string{"ClaimTaken claim web-0.lan is left alone: it belongs to Database main"}},
		"another pod's": {count: 1, there: []claim{c("web-0.lan", ref("Pod", "web-7", "x"))},
			want: []string{"ClaimTaken claim web-0.lan is left alone: it belongs to Pod web-7"}},
		"of another network": {count: 1, there: []claim{with(c("web-0.lan"), func(c *claim) { c.network = "wan" })},
			want: []string{`ClaimTaken claim web-0.lan is left alone: it is of network "wan", and the StatefulSet needs one of "net"`}},
		"of another interface": {count: 1, claims: "lan@net1", there: []claim{with(c("web-0.lan.net1"), func(c *claim) { c.ifName = "net2" })},
			want: []string{"ClaimTaken claim web-0.lan.net1 is left alone: it is for interface net2, and the StatefulSet needs one for net1"}},
		"a label on another claim": {count: 0, retained: both, there: []claim{c("mine"), c("webby-0.lan")}},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.claims == "" {
				tt.claims = "lan"
			}
			set, err := workload.ParseSet("ns", "web", tt.first, tt.count, workload.Text{
				Claims: tt.claims, Networks: "lan, dmz", Retention: tt.retained, Requested: tt.requested,
			})
			if err != nil {
				t.Fatal(err)
			}
			f := facts{set: set, uid: "web-uid", networks: map[workload.Element]network{}, claims: tt.there, pods: tt.pods}
			for _, e := range set.Elements {
				f.networks[e] = network{name: "net"}
			}
			if got := decide(f).words(); !slices.Equal(got, tt.want) {
				t.Errorf("got %q; want %q", got, tt.want)
			}
		})
	}
}

// TestJudgeOneThatIsThere: a claim that has the name already is the set's from now on, unless
// it is somebody else's.
func TestJudgeOneThatIsThere(t *testing.T) {
	set, err := workload.ParseSet("ns", "web", 0, 1, workload.Text{Claims: "lan", Networks: "lan"})
	if err != nil {
		t.Fatal(err)
	}
	f := facts{set: set, uid: "web-uid"}
	for name, tt := range map[string]struct {
		there claim
		want  []string
	}{
		"a person's":                 {claim{network: "net"}, []string{"change web-0.lan to nobody"}},
		"a person's of an interface": {claim{network: "net", ifName: "net1"}, []string{"change web-0.lan to nobody"}},
		"another set's":              {claim{network: "net", set: "web-0"}, []string{"ClaimTaken claim web-0.lan is left alone: it is for StatefulSet web-0"}},
		"a virtual machine's":        {claim{network: "net", vm: "web-0"}, []string{"ClaimTaken claim web-0.lan is left alone: it is for virtual machine web-0"}},
		"an owner's":                 {claim{network: "net", owners: []metav1.OwnerReference{ref("VirtualMachine", "web-0", "x")}}, []string{"ClaimTaken claim web-0.lan is left alone: it belongs to VirtualMachine web-0"}},
		"another leader has made it": {claim{network: "net", set: "web"}, nil},
		"being deleted":              {claim{network: "net", deleting: true}, nil},
		"of another network":         {claim{network: "wan"}, []string{`ClaimTaken claim web-0.lan is left alone: it is of network "wan", and the StatefulSet needs one of "net"`}},
	} {
		tt.there.name = "web-0.lan"
		var p plan
		p.add(f.judge(tt.there, 0, wanted{name: "web-0.lan", network: "net"}))
		if got := p.words(); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q; want %q", name, got, tt.want)
		}
	}
}

// TestManyAreMadeInBatches: a set can be scaled down while its claims are made.
func TestManyAreMadeInBatches(t *testing.T) {
	set, err := workload.ParseSet("ns", "web", 0, batch+1, workload.Text{Claims: "lan", Networks: "lan"})
	if err != nil {
		t.Fatal(err)
	}
	f := facts{set: set, made: 1}
	first := decide(f)
	if len(first.create) != batch || !first.more {
		t.Fatalf("%d at first, more %v; want %d, and more", len(first.create), first.more, batch)
	}
	for _, w := range first.create {
		f.claims = append(f.claims, claim{name: w.name, set: "web"})
	}
	if got := decide(f).words(); !slices.Equal(got, []string{"create web-1000.lan"}) {
		t.Errorf("then %q; want the last", got)
	}
}

// TestUnassignable: an address that no pool gives is found whichever ordinal it is for, but for one
// that has its claim already; nothing is said of a pool that is not there yet.
func TestUnassignable(t *testing.T) {
	set, err := workload.ParseSet("ns", "web", 5, 3, workload.Text{Claims: "lan", Networks: "lan", Requested: "10.0.0.6-10.0.0.9"})
	if err != nil {
		t.Fatal(err)
	}
	ranges := func(cidrs ...string) (all []poolspec.RangeText) {
		for _, c := range cidrs {
			all = append(all, poolspec.RangeText{CIDR: c})
		}
		return all
	}
	for name, tt := range map[string]struct {
		ranges []poolspec.RangeText
		claims []claim
		want   string
	}{
		"outside":           {ranges("10.0.0.0/29"), nil, "10.0.0.7 is for ordinal 6, and cannot be given: pool p: 10.0.0.7 is the broadcast address (10.0.0.0/29)"},
		"far outside":       {ranges("10.1.0.0/24", "fd00::/64"), nil, "10.0.0.6 is for ordinal 5, and cannot be given: pool p: 10.0.0.6 lies in none of the pool's ranges"},
		"excluded":          {[]poolspec.RangeText{{CIDR: "10.0.0.0/24", Exclude: []string{"10.0.0.8"}}}, nil, "10.0.0.8 is for ordinal 7, and cannot be given: pool p: 10.0.0.8 is excluded"},
		"a gateway":         {[]poolspec.RangeText{{CIDR: "10.0.0.0/24", Gateway: "10.0.0.6"}}, nil, "10.0.0.6 is for ordinal 5, and cannot be given: pool p: 10.0.0.6 is a gateway"},
		"excluded, and had": {[]poolspec.RangeText{{CIDR: "10.0.0.0/24", Exclude: []string{"10.0.0.8"}}}, []claim{{name: "web-7.lan"}}, ""},
		"static only":       {[]poolspec.RangeText{{CIDR: "10.0.0.0/24", StaticOnly: []string{"10.0.0.0/27"}}}, nil, ""},
	} {
		shape, err := poolspec.ParsePool(poolspec.PoolText{Ranges: tt.ranges})
		if err != nil {
			t.Fatal(err)
		}
		f := facts{set: set, claims: tt.claims, networks: map[workload.Element]network{set.Elements[0]: {name: "net", pools: []pool{{"p", shape}}}}}
		got := f.unassignable()
		if (got == nil) != (tt.want == "") || got != nil && (got.reason != ReasonInvalid || !strings.Contains(got.message, tt.want)) {
			t.Errorf("%s: %v; want %q", name, got, tt.want)
		}
	}
	f := facts{set: set, networks: map[workload.Element]network{set.Elements[0]: {name: "net"}}}
	if got := f.unassignable(); got != nil {
		t.Errorf("without a pool: %v; want nothing", got)
	}
}

// TestClaimsAreBoundByPods: a set may name more replicas than there will ever be pods. It has the
// claims of so many ordinals as it has pods, and of some that come next, whatever it names. What
// has a claim beyond that keeps it, by the same rules.
func TestClaimsAreBoundByPods(t *testing.T) {
	set, err := workload.ParseSet("ns", "web", 3, math.MaxInt32, workload.Text{Claims: "lan", Networks: "lan", Requested: "fd00::1-fd00::ffff:ffff"})
	if err != nil {
		t.Fatal(err)
	}
	shape, err := poolspec.ParsePool(poolspec.PoolText{Ranges: []poolspec.RangeText{{CIDR: "fd00::/64"}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, pods := range []int{0, 1, 2 * batch} {
		f := facts{set: set, uid: "web-uid", made: pods, networks: map[workload.Element]network{set.Elements[0]: {name: "net", pools: []pool{{"p", shape}}}}}
		f.claims = []claim{{name: "web-70000.lan", network: "net", set: "web", owners: []metav1.OwnerReference{ref("StatefulSet", "web", "web-uid")}}}
		if fault := f.unassignable(); fault != nil {
			t.Fatal(fault.message)
		}
		var changed []string
		for more := true; more; {
			p := decide(f)
			for _, w := range p.create {
				f.claims = append(f.claims, claim{name: w.name, network: "net", set: "web"})
			}
			p.create, more = nil, p.more
			changed = p.words()
		}
		if got, want := len(f.claims)-1, pods+ahead; got != want {
			t.Errorf("with %d pods: %d claims are made; want %d", pods, got, want)
		}
		if last, want := f.claims[len(f.claims)-1].name, fmt.Sprintf("web-%d.lan", 3+pods+ahead-1); last != want {
			t.Errorf("with %d pods: the last claim is %s; want %s", pods, last, want)
		}
		if want := []string{"change web-70000.lan to nobody"}; !slices.Equal(changed, want) {
			t.Errorf("with %d pods: %q; want %q", pods, changed, want)
		}
	}
}
