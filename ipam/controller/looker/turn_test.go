package looker

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/controller/grants"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// turnCache has a definition of each of the pools 0 to 3, and 300 more of pools 0 and 1 each.
type turnCache struct{ client.Reader }

func (turnCache) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	all := into.(*nad.NetworkAttachmentDefinitionList)
	add := func(namespace, name string, pool int) {
		d := nad.NetworkAttachmentDefinition{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		d.Spec.Config = fmt.Sprintf(`{"cniVersion":"1.0.0","name":%q,"type":"macvlan","ipam":{"type":"tenure","pool":"pool-%d"}}`, name, pool)
		all.Items = append(all.Items, d)
	}
	for pool := range 4 {
		add("ns", fmt.Sprint("net-", pool), pool)
	}
	for i := range 300 {
		add("crowd", fmt.Sprint("a", i), 0)
		add("crowd", fmt.Sprint("b", i), 1)
	}
	return nil
}

// TestEachPoolHasItsTurn (I5): nodes are asked of different pools, of some of which there is too
// much for one question: three wait for what cannot be read. What is kept of another is asked for
// as well, and comes free.
func TestEachPoolHasItsTurn(t *testing.T) {
	c := newCluster()
	c.Cache = turnCache{c}
	c.regs = append(c.regs, protocol.Registration{Meta: protocol.Meta{Name: "n2"}, Node: "n2", Store: "s"})
	for i := range 6 {
		pool := lan()
		pool.Name, pool.UID = fmt.Sprint("pool-", i), types.UID(fmt.Sprint(i))
		pool.Spec.Ranges[0].CIDR, pool.Status.Withheld = fmt.Sprintf("10.%d.0.0/16", i), nil
		if i == 0 || i == 2 || i == 3 {
			pool.Status.Withheld = []string{fmt.Sprintf("10.%d.1.0-10.%d.1.255", i, i)}
			pod, net := showing(fmt.Sprint("p", i), fmt.Sprintf("10.%d.1.2", i)), fmt.Sprint("net-", i)
			pod.Annotations[npwg.AnnotationNetworks] = net
			pod.Annotations[npwg.AnnotationStatus] = strings.ReplaceAll(pod.Annotations[npwg.AnnotationStatus], "ns/net", "ns/"+net)
			c.pods = append(c.pods, pod)
		}
		c.pools = append(c.pools, pool)
	}
	kept := keptFor("gone", "10.1.0.2")
	kept.Pool = "pool-1"
	c.kept = []grants.Held{kept}
	c.gives = func(grants.Ask) grants.Answer { return grants.Answer{Granted: make([]grants.Granted, 1)} }
	c.answer = func(q protocol.Query) protocol.Report {
		r := protocol.Report{ID: q.ID, Running: []protocol.UID{"p0", "p2", "p3"}}
		for _, n := range q.HostLocal {
			if n.Network == "net-0" || n.Network == "net-2" || n.Network == "net-3" {
				r.Unseen = append(r.Unseen, protocol.Unseen{HostLocal: n, Why: "cannot read"})
			}
		}
		return r
	}
	c.answer2 = c.answer
	for begun := c.now; len(c.freed) == 0; c.now = c.now.Add(endEvery) {
		if c.now.Sub(begun) > 10*time.Minute {
			t.Fatal("what nobody has any more of pool-1 is not free after ten minutes")
		}
		c.look(t)
	}
}

// longCache has beside those of a cluster 120 definitions of Tenure's, each with a pool of its own
// and a long directory, and one of whereabouts' for each, beside which its pool is never opened.
type longCache struct{ client.Reader }

func (c longCache) List(ctx context.Context, into client.ObjectList, o ...client.ListOption) error {
	all, isList := into.(*nad.NetworkAttachmentDefinitionList)
	if err := c.Reader.List(ctx, into, o...); err != nil || !isList {
		return err
	}
	for i := range 120 {
		for name, ipam := range map[string]string{
			fmt.Sprint("t-", i): fmt.Sprintf(`{"type":"tenure","subnet":"10.1.%d.0/24","dataDir":"/%s"}`, i, strings.Repeat("d", 3000)),
			fmt.Sprint("w-", i): fmt.Sprintf(`{"type":"whereabouts","range":"10.1.%d.0/24"}`, i),
		} {
			d := nad.NetworkAttachmentDefinition{ObjectMeta: metav1.ObjectMeta{Namespace: "crowd", Name: name}}
			d.Spec.Config = fmt.Sprintf(`{"cniVersion":"1.0.0","name":%q,"type":"macvlan","ipam":%s}`, name, ipam)
			all.Items = append(all.Items, d)
		}
	}
	return nil
}

// TestTurnsOfManyPools (I5): many pools wait that there is no room for in one question, and another
// node is asked of a single pool alone. Each look goes on by the question that had no room.
func TestTurnsOfManyPools(t *testing.T) {
	c := newCluster()
	c.Cache = longCache{c}
	for i := range 120 {
		pool := v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("t-", i), UID: types.UID(fmt.Sprint("u", i)), Labels: map[string]string{v1alpha1.LabelImplicit: "true"}}}
		pool.Spec.Domain, pool.Spec.Ranges = pool.Name, []v1alpha1.Range{{CIDR: fmt.Sprintf("10.1.%d.0/24", i)}}
		c.pools = append(c.pools, pool)
	}
	kept := keptFor("gone", "10.0.0.9")
	kept.Grant.To.Node = "n2"
	c.pools, c.pods, c.kept = append(c.pools, lan()), []*corev1.Pod{showing("p", "10.0.1.2")}, []grants.Held{kept}
	c.regs = append(c.regs, protocol.Registration{Meta: protocol.Meta{Name: "n2"}, Node: "n2", Store: "s"})
	c.Beats = func(n protocol.NodeName) bool { return n != "n2" }
	c.gives = func(grants.Ask) grants.Answer { return grants.Answer{Granted: make([]grants.Granted, 1)} }
	c.answer = func(q protocol.Query) protocol.Report { return protocol.Report{ID: q.ID, Running: []protocol.UID{"p"}} }
	looks := 0
	for ; !c.look(t).Clear(); looks++ {
		if c.now = c.now.Add(waitEvery); looks > 40 {
			t.Fatal("the pool is not clear after 40 looks")
		}
	}
}
