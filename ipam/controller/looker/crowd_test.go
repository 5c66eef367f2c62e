package looker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/foreign"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// TestLetDefinitionOfManyRanges: a definition of whereabouts' that makes more ranges than a
// fence has room for, by its excludes or between its own ranges, holds up no pool whose owner
// lets it.
func TestLetDefinitionOfManyRanges(t *testing.T) {
	var exclude, ranges []string
	for i := range maxFence + 1 {
		exclude = append(exclude, fmt.Sprintf(`"10.0.%d.%d/32"`, i/128, i%128*2))
	}
	for i := range 150 {
		ranges = append(ranges, fmt.Sprintf(`{"range":"10.0.%d.%d/32"}`, i, i+1))
	}
	for _, keys := range []string{
		`"range":"10.0.0.0/16","exclude":[` + strings.Join(exclude, ",") + `]`,
		`"ipRanges":[` + strings.Join(ranges, ",") + `]`,
	} {
		c := newCluster()
		c.more = []string{fmt.Sprintf(`{"cniVersion":"1.0.0","name":"x","type":"macvlan","ipam":{"type":"whereabouts",%s}}`, keys)}
		pool := lan()
		pool.Status.Leasing, pool.Status.Withheld = "", nil
		pool.Spec.ShareWith = []string{"ns/more-0"}
		c.pools, c.record = []v1alpha1.IPPool{pool}, map[string]any{"range": "10.0.0.0/16"}
		if v := c.look(t); strings.Contains(v.Why, "cannot be kept") || len(v.Fence) > maxFence {
			t.Errorf("%.60s in spec.shareWith: stage %d, %q", keys, v.Stage, v.Why)
		}
	}
}

// crowdedCache has many definitions of a namespace beside those of a cluster.
type crowdedCache struct {
	client.Reader
	n int
}

func (c crowdedCache) List(ctx context.Context, into client.ObjectList, o ...client.ListOption) error {
	all, isList := into.(*nad.NetworkAttachmentDefinitionList)
	if err := c.Reader.List(ctx, into, o...); err != nil || !isList {
		return err
	}
	for i := range c.n {
		for network, dir := range map[string]string{"aa": strings.Repeat("d", 900), fmt.Sprint("b", i): ""} {
			d := nad.NetworkAttachmentDefinition{ObjectMeta: metav1.ObjectMeta{Namespace: "crowd", Name: fmt.Sprint(network, "-", i)}}
			d.Spec.Config = fmt.Sprintf(`{"cniVersion":"1.0.0","name":%q,"type":"macvlan","ipam":{"type":"tenure","pool":"lan","dataDir":"/%d%s"}}`, network, i, dir)
			all.Items = append(all.Items, d)
		}
	}
	return nil
}

// TestCrowdOfDefinitions: definitions of a namespace that may not use the pool take no room of
// those that may.
func TestCrowdOfDefinitions(t *testing.T) {
	c := newCluster()
	c.Cache = crowdedCache{c, 600}
	c.MayUse = func(_ context.Context, _ *v1alpha1.IPPool, namespace string) bool { return namespace == "ns" }
	c.pools, c.pods = []v1alpha1.IPPool{lan()}, []*corev1.Pod{showing("p", "10.0.1.2")}
	c.answer = func(q protocol.Query) protocol.Report { return protocol.Report{ID: q.ID, Running: []protocol.UID{"p"}} }
	v := c.look(t)
	if asked := slices.ContainsFunc(c.asked, func(q protocol.Query) bool {
		return slices.ContainsFunc(q.HostLocal, func(n protocol.HostLocal) bool { return n.Network == "net" })
	}); !asked || v.Stage == foreign.StageReports {
		t.Errorf("the pool's own network is asked for: %v, stage %d, %q", asked, v.Stage, v.Why)
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

// TestFenceOfOthersNetworkNames: definitions of another namespace, whose network_name no object of
// whereabouts' can have, or which make many ranges together, hold up no pool whose owner lets them.
func TestFenceOfOthersNetworkNames(t *testing.T) {
	of := func(ipam string) string {
		return `{"cniVersion":"1.0.0","name":"b","type":"macvlan","ipam":` + ipam + `}`
	}
	gaps := func(network string) string {
		var exclude []string
		for i := range 700 {
			exclude = append(exclude, fmt.Sprintf(`"10.0.%d.%d/32"`, 128+i/100, i%100*2+1))
		}
		return of(fmt.Sprintf(`{"type":"whereabouts","network_name":%q,"range":"10.0.0.0/16","exclude":[%s]}`, network, strings.Join(exclude, ",")))
	}
	for _, tt := range []struct {
		name string
		more []string
		let  bool
		want string // what is named
	}{
		{"longer than any object's", []string{of(`{"type":"tenure","network_name":"` + strings.Repeat("x", 300) + `","range":"10.0.0.0/16"}`)}, false, ""},
		{"as long as an object's", []string{of(`{"type":"tenure","network_name":"` + strings.Repeat("x", 250) + `","range":"10.0.0.0/16"}`)}, false, "definition ns/more-0"},
		{"as long as an object's", []string{of(`{"type":"tenure","network_name":"` + strings.Repeat("x", 250) + `","range":"10.0.0.0/16"}`)}, true, ""},
		{"two, with 700 excludes each", []string{gaps("b"), gaps("c")}, false, "ns/more-1"},
		{"two, with 700 excludes each", []string{gaps("b"), gaps("c")}, true, ""},
	} {
		c := newCluster()
		p := lan()
		if tt.let {
			p.Spec.ShareWith = []string{"ns/more-0", "ns/more-1"}
		}
		c.pools, c.record, c.more = []v1alpha1.IPPool{p}, map[string]any{"range": "10.0.0.0/16"}, tt.more
		v := c.look(t)
		unfenced := strings.Contains(v.Why, "cannot be kept from giving")
		if unfenced != (tt.want != "") || !strings.Contains(v.Why, tt.want) || tt.want != "" && !strings.Contains(v.Why, "spec.shareWith") {
			t.Errorf("%s, let: %v: stage %d, %q; want that it names %q", tt.name, tt.let, v.Stage, v.Why, tt.want)
		}
	}
}
