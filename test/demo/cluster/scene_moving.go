package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	"github.com/vishvananda/netlink"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/test/demo/show"
)

// A network whose addresses are host-local's at first. host-local knows of one node only,
// so each node has a definition of its own, with its part of the range: four addresses.
const (
	depotName   = "depot"
	depotLeases = "cni/networks/" + depotName // in nodeLib: what host-local has given out
	depotConfig = `{
  "cniVersion": "1.0.0", "name": "depot",
  "type": "macvlan", "master": "eth1",
  "ipam": {
    "type": "host-local",
    "ranges": [[{"subnet": "10.80.0.0/24", "rangeStart": "10.80.0.%d", "rangeEnd": "10.80.0.%d"}]]
  }
}`
)

// moving is the pods of the moving network, and what those that were there before have.
type moving struct {
	old, fresh []*pod
	before     []string // see look
}

// depotOf returns the name of a node's definition.
func depotOf(n *node) string { return depotName + strings.TrimPrefix(n.name, "node") }

func (d *demo) playMoving(ctx context.Context) {
	d.startDepot(ctx)
	watch := newWatch(ctx, d.moving.old[0], d.moving.old[2].addrs[0].Addr())
	d.playImport(ctx)
	d.playFresh(ctx, watch)
	d.playOldEnd(ctx)
}

// startDepot makes the network, and its old pods.
func (d *demo) startDepot(ctx context.Context) {
	m := &d.moving
	for i, n := range []*node{d.nodeA, d.nodeB} {
		definition := &nad.NetworkAttachmentDefinition{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: depotOf(n)},
			Spec:       nad.NetworkAttachmentDefinitionSpec{Config: fmt.Sprintf(depotConfig, 10*i+10, 10*i+13)},
		}
		d.Must(d.Client.Create(ctx, definition))
	}
	d.kubectl(ctx, "-n", namespace, "get", "network-attachment-definition", depotOf(d.nodeA), "-o", "jsonpath={.spec.config}")
	m.old = d.runInDepot(ctx, "old")
	for _, p := range m.old {
		d.byHostLocal(p)
	}
	m.before = d.look(m.old)
	d.showDepot(m.old, "host-local")
	d.OK("%d pods run on the network. host-local's files on the two nodes have their addresses.", len(m.old))
}

// runInDepot runs two pods on each node, on the node's network.
func (d *demo) runInDepot(ctx context.Context, name string) (pods []*pod) {
	for i, n := range []*node{d.nodeA, d.nodeA, d.nodeB, d.nodeB} {
		p := d.run(ctx, n, fmt.Sprintf("%s-%d", name, i+1), selections{{Name: depotOf(n)}})
		if len(p.addrs) != 1 {
			d.Fail("%s has %v; want one address", p.name, p.addrs)
		}
		pods = append(pods, p)
	}
	return pods
}

// byHostLocal checks that the pod has its address by its node's host-local.
func (d *demo) byHostLocal(p *pod) {
	owner, err := os.ReadFile(filepath.Join(p.node.lib(depotLeases), p.addrs[0].Addr().String()))
	d.Must(err)
	if !strings.Contains(string(owner), p.sandbox) {
		d.Fail("host-local of %s has %v given to %q; want the sandbox of %s", p.node.name, p.addrs[0], owner, p.name)
	}
}

// look returns what the kernel has of the pods' interfaces on the network: index, MAC and
// addresses.
func (d *demo) look(pods []*pod) (all []string) {
	for _, p := range pods {
		addrs := d.addrs(p, p.sel.ifName(0))
		d.Must(p.ns.Do(func() error {
			link, err := netlink.LinkByName(p.sel.ifName(0))
			if err == nil {
				all = append(all, fmt.Sprintf("%s: %d, %v, %v", p.name, link.Attrs().Index, link.Attrs().HardwareAddr, addrs))
			}
			return err
		}))
	}
	return all
}

// showDepot prints who has which address by which IPAM.
func (d *demo) showDepot(pods []*pod, ipam string) {
	rows := [][]string{{"POD", "NODE", "NETWORK", "ADDRESS", "BY"}}
	for _, p := range pods {
		rows = append(rows, []string{p.name, p.node.name, p.sel[0].Name, texts(p.addrs), ipam})
	}
	d.Table(rows...)
}

// playImport shows what import would do, and has it do it.
func (d *demo) playImport(ctx context.Context) {
	d.kubectl(ctx, "tenure", "import", "--from", "host-local")
	d.depotNames(ctx, "host-local")
	d.OK("That is the plan: the definitions as they would be. Nothing has been written.")
	d.kubectl(ctx, "tenure", "import", "--from", "host-local", "--apply")
	d.depotNames(ctx, "tenure")
	opened, out, err := d.API.ReadPool(ctx, depotName)
	if out != protocol.Done || !opened.Open {
		d.Fail("pool %s is not open after the import: %w", depotName, err)
	}
	kept, err := d.kept(ctx)
	d.Must(err)
	for _, p := range d.moving.old {
		if kept[p.addrs[0].Addr()] != p.name || len(kept) != len(d.moving.old) {
			d.Fail("kept are %v; want what the old pods have, %v of %s and so on", kept, p.addrs, p.name)
		}
	}
	d.OK("Before the pool was opened, the %d addresses of the old pods were granted to them.", len(kept))
}

// depotNames checks which IPAM the definitions of the network name.
func (d *demo) depotNames(ctx context.Context, ipam string) {
	for _, n := range []*node{d.nodeA, d.nodeB} {
		var definition nad.NetworkAttachmentDefinition
		d.Must(d.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: depotOf(n)}, &definition))
		if !strings.Contains(definition.Spec.Config, fmt.Sprintf(`"type": %q`, ipam)) {
			d.Fail("definition %s does not name %s: %s", definition.Name, ipam, definition.Spec.Config)
		}
	}
}

// kept returns which addresses are kept for pods of other IPAMs, and the pods' names.
func (d *demo) kept(ctx context.Context) (map[netip.Addr]string, error) {
	leases, err := d.API.Leases(ctx)
	if err != nil {
		return nil, err
	}
	kept := map[netip.Addr]string{}
	for _, l := range leases {
		for _, g := range l.Grants {
			if g.To.Kind == protocol.GranteePod {
				kept[g.Addr] = g.To.Name
			}
		}
	}
	return kept, nil
}

// playFresh starts new pods on the network, beside the old ones.
func (d *demo) playFresh(ctx context.Context, watch *watch) {
	m := &d.moving
	m.fresh = d.runInDepot(ctx, "new")
	d.showDepot(m.fresh, "tenure")
	all := slices.Concat(m.old, m.fresh)
	owner := map[netip.Addr]string{}
	for _, p := range all {
		a := p.addrs[0].Addr()
		if other, taken := owner[a]; taken {
			d.Fail("%v was given to %s and to %s", a, other, p.name)
		}
		owner[a] = p.name
	}
	d.OK("New pods start on the same networks, and fill them: %d pods have %d addresses, none of them twice.", len(all), len(owner))
	pings := d.pingAll(ctx, all, all)
	answers, silence := d.end(watch)
	after := d.look(m.old)
	if !slices.Equal(after, m.before) {
		d.Fail("the old pods' interfaces have changed from %v to %v", m.before, after)
	}
	d.OK("Old and new pods reach each other: %d pings answered. The old pods' interfaces are as they were. Between two of them %d pings "+
		"went on all the while, the slowest answered in %s.", pings, answers, show.Millis(silence))
	d.askWho(ctx, m.old[0])
}

// askWho shows that Tenure knows which old pod has an address.
func (d *demo) askWho(ctx context.Context, p *pod) {
	addr := p.addrs[0].Addr().String()
	text, code := d.runKubectl(ctx, "tenure", "who", addr)
	if code != 0 || !strings.Contains(text, "pod "+namespace+"/"+p.name+" ") {
		d.Fail("kubectl tenure who %s exits with %d; want pod %s: %s", addr, code, p.name, text)
	}
	d.Command("kubectl tenure who %s", addr)
	d.Block(text)
	d.OK("Tenure knows which pod has %s, although it has not given it.", addr)
}

// playOldEnd ends all pods of the network.
func (d *demo) playOldEnd(ctx context.Context) {
	m := &d.moving
	all := slices.Concat(m.old, m.fresh)
	var names []string
	for _, p := range all {
		names = append(names, p.name)
	}
	d.Command("kubectl -n %s delete pod %s", namespace, strings.Join(names, " "))
	for _, p := range all {
		d.remove(ctx, p)
	}
	for _, n := range []*node{d.nodeA, d.nodeB} {
		given, err := filepath.Glob(filepath.Join(n.lib(depotLeases), "10.80.*"))
		d.Must(err)
		if len(given) > 0 {
			d.Fail("host-local of %s still has %v", n.name, given)
		}
	}
	d.OK("The DELs of the old pods went to host-local, which has no address given out any more. Tenure frees what it has kept when two " +
		"looks, ten seconds apart, have seen that the pods are gone: see the last scene.")
}
