package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/npwg"
	attachjournal "github.com/tenure-ipam/tenure/attach/journal"
	"github.com/tenure-ipam/tenure/ipam/delqueue"
	"github.com/tenure-ipam/tenure/test/cninet"
	"github.com/tenure-ipam/tenure/test/demo/show"
)

// several is the pod with several networks, its neighbour on the other node, its
// claim, and the interfaces that its node had before it.
type several struct {
	pod, neighbour *pod
	claim          claimed
	before         []string
}

func (d *demo) playSeveral(ctx context.Context) {
	s := &d.networks
	s.claim = d.claim(ctx, severalClaim)
	s.before = d.interfaces(d.nodeA.host)
	s.pod = d.run(ctx, d.nodeA, severalName, severalNetworks)
	d.Does("a person", "creates the claim %s, and then the pod of api.yaml", severalClaim)
	d.showInterfaces(s.pod)
	d.check(ctx, s.claim, s.pod)
	d.checkOthers(s.pod)
	d.OK("One call of %s, %s of it the agent's: net1 has the claim's addresses, %s the one that was asked for, net3 one of its pool's.",
		show.Millis(s.pod.added), s.pod.served, severalIf)
	d.showStatus(s.pod)
	d.OK("The status annotation says what is in the pod's network namespace.")
	s.neighbour = d.run(ctx, d.nodeB, "client", selections{{Name: networkName}, {Name: storageName, Interface: severalIf}, {Name: backupName}})
	pings := d.pingNetworks(ctx, s.neighbour, s.pod)
	d.OK("A pod on the other node reaches it on every one of the three networks: %d pings answered.", pings)
}

// checkOthers checks the addresses of the pod's networks without a claim.
func (d *demo) checkOthers(p *pod) {
	static, ordinary := d.addrs(p, severalIf), d.addrs(p, "net3")
	if texts(static) != severalAddr+"/24" {
		d.Fail("%s of %s has %v; want %s/24", severalIf, p.name, static, severalAddr)
	}
	if len(ordinary) != 1 || !netip.MustParsePrefix("10.79.0.0/24").Contains(ordinary[0].Addr()) {
		d.Fail("net3 of %s has %v; want an address of pool %s", p.name, ordinary, backupName)
	}
}

// showInterfaces shows what the kernel has of a pod.
func (d *demo) showInterfaces(p *pod) {
	names := d.interfaces(p.ns)
	rows := [][]string{{"POD", "INTERFACE", "NETWORK", "ADDRESSES"}}
	for _, ifName := range names {
		network := ""
		for j := range p.sel {
			if p.sel.ifName(j) == ifName {
				network = namespace + "/" + p.sel[j].Name
			}
		}
		if ifName == "eth0" {
			network = podsNetwork + ", the default network"
		}
		if network == "" { // the loopback
			continue
		}
		rows = append(rows, []string{p.name, ifName, network, texts(d.addrs(p, ifName))})
	}
	if len(rows) != 2+len(p.sel) {
		d.Fail("%s has the interfaces %v; want %d and the loopback", p.name, names, 1+len(p.sel))
	}
	d.Table(rows...)
}

// showStatus shows a pod's network status, which awaitStatus has compared.
func (d *demo) showStatus(p *pod) {
	var list []json.RawMessage
	d.Must(json.Unmarshal([]byte(p.object.Annotations[npwg.AnnotationStatus]), &list))
	d.Does(p.name+"'s annotation", "%s", npwg.AnnotationStatus)
	for _, element := range list {
		d.Item(strings.ReplaceAll(string(element), `,"`, `, "`))
	}
	d.Gap()
}

// pingNetworks pings, from a pod, what another has on each network that both select
// at the same place.
func (d *demo) pingNetworks(ctx context.Context, from, to *pod) (pings int) {
	d.During("pings", func() error {
		for i := range to.sel {
			addrs, err := to.ns.Addrs(to.sel.ifName(i))
			if err != nil {
				return err
			}
			for _, a := range addrs {
				if err := ping(ctx, from, a.Addr()); err != nil {
					return fmt.Errorf("%v of network %s: %w", a, to.sel[i].Name, err)
				}
				pings++
			}
		}
		return nil
	})
	return pings
}

func (d *demo) playAlone(ctx context.Context) {
	s, n := &d.networks, d.nodeA
	d.remove(ctx, s.neighbour)
	d.showAttached(n, s.pod)
	d.Command("kubectl -n %s delete network-attachment-definition %s %s", namespace, storageName, backupName)
	for _, name := range []string{storageName, backupName} {
		d.Must(d.Client.Delete(ctx, &nad.NetworkAttachmentDefinition{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}))
	}
	d.Command("kubectl -n %s delete pod %s --force", namespace, s.pod.name)
	d.forget(ctx, s.pod)
	d.Command("pkill -KILL -f 'tenured --node=%s'", n.name)
	d.Must(n.agent.Kill())
	d.playDelAlone(ctx)
	d.Step("tenured on "+n.name+", started again", func() error { return n.agent.Start(ctx) })
	d.awaitFreed(ctx, n, s.pod)
	d.awaitUsedBy(ctx, s.claim)
	d.granted(ctx, s.claim)
	d.OK("The agent has applied them. The addresses are free again; the claim, which nobody uses, still has its own.")
	d.Must(d.Client.Delete(ctx, s.claim.object))
}

// playDelAlone deletes the pod's sandbox while the API server is frozen.
func (d *demo) playDelAlone(ctx context.Context) {
	d.Must(d.PauseAPIServer())
	defer func() { d.Must(d.ResumeAPIServer()) }()
	d.Command("kill -STOP $(pidof kube-apiserver)")
	s, n := &d.networks, d.nodeA
	config, err := n.configuration()
	d.Must(err)
	took := d.During("DEL of "+s.pod.name, func() error { return n.cni.Del(ctx, config, s.pod.attachment()) })
	inside, host := d.interfaces(s.pod.ns), d.interfaces(n.host)
	if !slices.Equal(inside, []string{"lo"}) || !slices.Equal(host, s.before) {
		d.Fail("after DEL %s has the interfaces %v, and %s has %v; want lo, and %v as before", s.pod.name, inside, n.name, host, s.before)
	}
	d.Must(n.attachedLeft(s.pod.sandbox))
	d.OK("DEL took %s, and left nothing: no interface in the pod or on the host, no journal, no address of the default network.", show.Millis(took))
	d.showJournal(n, s.pod)
	waiting, _, err := delqueue.List(n.journal())
	d.Must(err)
	if len(waiting) != len(s.pod.sel) {
		d.Fail("%d DELs wait for the agent; want %d", len(waiting), len(s.pod.sel))
	}
	d.OK("Tenure's own addresses wait on disk for the agent: %d DELs.", len(waiting))
	d.pods = slices.DeleteFunc(d.pods, func(p *pod) bool { return p == s.pod })
	d.Must(s.pod.ns.Delete())
}

// showAttached shows what the meta-plugin's journal has of a pod.
func (d *demo) showAttached(n *node, p *pod) {
	entries, unread, err := n.attached().List(time.Now())
	d.Must(err)
	i := slices.IndexFunc(entries, func(e *attachjournal.Entry) bool { return e.ContainerID == p.sandbox })
	if i < 0 || len(unread) > 0 {
		d.Fail("the journals of %s have %d sandboxes (unread: %v), not that of %s", n.name, len(entries), unread, p.name)
	}
	rows := [][]string{{"TO BE UNDONE ON " + strings.ToUpper(n.name), "NETWORK", "INTERFACE"}}
	for at, step := range slices.Backward(entries[i].Plan.Steps) {
		if entries[i].Steps[at].Ended() { // it was, while the pod ran
			continue
		}
		rows = append(rows, []string{p.sandbox[:12] + "…", step.Name, step.IfName})
	}
	d.Table(rows...)
}

// attached is the state of the node's meta-plugin.
func (n *node) attached() attachjournal.Dir {
	return attachjournal.Dir{Path: n.lib("cni/tenure-attach")}
}

// interfaces returns the names of the interfaces of a network namespace.
func (d *demo) interfaces(of cninet.NS) []string {
	names, err := of.Interfaces()
	d.Must(err)
	return names
}

// attachedLeft reports what the node has of a sandbox outside of Tenure's store: the
// meta-plugin's journal, and what the default network's IPAM plugin has given out. An
// empty sandbox stands for any.
func (n *node) attachedLeft(sandbox string) error {
	entries, unread, err := n.attached().List(time.Now())
	if err := errors.Join(append(unread, err)...); err != nil {
		return err
	}
	for _, e := range entries {
		if sandbox == "" || e.ContainerID == sandbox {
			return fmt.Errorf("the journal of %s still has sandbox %s", n.name, e.ContainerID)
		}
	}
	given, err := os.ReadDir(n.lib(podsLeases))
	if err != nil {
		return err
	}
	for _, f := range given {
		if _, err := netip.ParseAddr(f.Name()); err != nil {
			continue // a lock, or the last address
		}
		owner, err := os.ReadFile(filepath.Join(n.lib(podsLeases), f.Name()))
		if err != nil {
			return err
		}
		if strings.Contains(string(owner), sandbox) {
			return fmt.Errorf("the default network of %s still has %s given to %q", n.name, f.Name(), owner)
		}
	}
	return nil
}
