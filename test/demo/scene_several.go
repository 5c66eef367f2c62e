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
)

// several is the pod with several networks, its neighbour on the other node, its
// claim, and the interfaces that its node had before it.
type several struct {
	pod, neighbour *pod
	claim          claimed
	before         []string
}

func (d *demo) severalScene() scene {
	return scene{
		"A pod with three networks: one by claim, one static, one ordinary",
		"The runtime makes one call. The meta-plugin tenure-attach writes the whole plan to disk, runs the plugins of the default network and of " +
			"the three others, one after the other, and answers. Then the agent writes into the pod's status annotation what the pod has.",
		d.playSeveral,
	}
}

func (d *demo) playSeveral(ctx context.Context) (err error) {
	s := &d.networks
	if s.claim, err = d.claim(ctx, severalClaim); err != nil {
		return err
	}
	if s.before, err = d.nodeA.host.Interfaces(); err != nil {
		return err
	}
	if s.pod, err = d.run(ctx, d.nodeA, severalName, severalNetworks); err != nil {
		return err
	}
	d.screen.does("a person", "creates the claim %s, and then the pod of api.yaml", severalClaim)
	if err := d.showInterfaces(s.pod); err != nil {
		return err
	}
	if err := d.check(ctx, s.claim, s.pod); err != nil {
		return err
	}
	if err := s.checkOthers(); err != nil {
		return err
	}
	d.screen.ok("One call of %s, %s of it the agent's: net1 has the claim's addresses, %s the one that was asked for, net3 one of its pool's.",
		millis(s.pod.added), s.pod.served, severalIf)
	if err := d.showStatus(s.pod); err != nil {
		return err
	}
	d.screen.ok("The status annotation says what is in the pod's network namespace.")
	s.neighbour, err = d.run(ctx, d.nodeB, "client", selections{{Name: networkName}, {Name: storageName, Interface: severalIf}, {Name: backupName}})
	if err != nil {
		return err
	}
	pings, err := d.pingNetworks(ctx, s.neighbour, s.pod)
	if err != nil {
		return err
	}
	d.screen.ok("A pod on the other node reaches it on every one of the three networks: %d pings answered.", pings)
	return nil
}

// checkOthers checks the addresses of the pod's networks without a claim.
func (s *several) checkOthers() error {
	static, err := s.pod.ns.Addrs(severalIf)
	if err != nil {
		return err
	}
	if texts(static) != severalAddr+"/24" {
		return fmt.Errorf("%s of %s has %v; want %s/24", severalIf, s.pod.name, static, severalAddr)
	}
	ordinary, err := s.pod.ns.Addrs("net3")
	if err != nil {
		return err
	}
	if len(ordinary) != 1 || !netip.MustParsePrefix("10.79.0.0/24").Contains(ordinary[0].Addr()) {
		return fmt.Errorf("net3 of %s has %v; want an address of pool %s", s.pod.name, ordinary, backupName)
	}
	return nil
}

// showInterfaces shows what the kernel has of a pod.
func (d *demo) showInterfaces(p *pod) error {
	names, err := p.ns.Interfaces()
	if err != nil {
		return err
	}
	rows := [][]string{{"POD", "INTERFACE", "NETWORK", "ADDRESSES"}}
	for i, ifName := range names {
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
		addrs, err := p.ns.Addrs(names[i])
		if err != nil {
			return err
		}
		rows = append(rows, []string{p.name, ifName, network, texts(addrs)})
	}
	if len(rows) != 2+len(p.sel) {
		return fmt.Errorf("%s has the interfaces %v; want %d and the loopback", p.name, names, 1+len(p.sel))
	}
	d.screen.table(rows...)
	return nil
}

// showStatus shows a pod's network status, which awaitStatus has compared.
func (d *demo) showStatus(p *pod) error {
	var list []json.RawMessage
	if err := json.Unmarshal([]byte(p.object.Annotations[npwg.AnnotationStatus]), &list); err != nil {
		return err
	}
	d.screen.does(p.name+"'s annotation", "%s", npwg.AnnotationStatus)
	for _, element := range list {
		for i, l := range wrap(strings.ReplaceAll(string(element), `,"`, `, "`), d.screen.width-3*len(margin)) {
			if i > 0 {
				l = margin + l
			}
			d.screen.line(margin + margin + l)
		}
	}
	d.screen.gap()
	return nil
}

// pingNetworks pings, from a pod, what another has on each network that both select
// at the same place.
func (d *demo) pingNetworks(ctx context.Context, from, to *pod) (pings int, err error) {
	_, err = d.screen.during("pings", func(func(string)) error {
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
	return pings, err
}

func (d *demo) aloneScene() scene {
	return scene{
		"A DEL with nobody left to ask",
		"The pod is deleted by force, and so are two of its networks. Then the agent is killed, and the API server frozen. What is to be undone " +
			"is in the journal that tenure-attach wrote before the first plugin was run.",
		d.playAlone,
	}
}

func (d *demo) playAlone(ctx context.Context) error {
	s, n := &d.networks, d.nodeA
	if err := d.remove(ctx, s.neighbour); err != nil {
		return err
	}
	if err := d.showAttached(n, s.pod); err != nil {
		return err
	}
	d.screen.command("kubectl -n %s delete network-attachment-definition %s %s", namespace, storageName, backupName)
	for _, name := range []string{storageName, backupName} {
		if err := d.kube.Delete(ctx, &nad.NetworkAttachmentDefinition{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}); err != nil {
			return err
		}
	}
	d.screen.command("kubectl -n %s delete pod %s --force", namespace, s.pod.name)
	if err := d.forget(ctx, s.pod); err != nil {
		return err
	}
	d.screen.command("pkill -KILL -f 'tenured --node=%s'", n.name)
	if err := n.agent.kill(); err != nil {
		return err
	}
	if err := d.playDelAlone(ctx); err != nil {
		return err
	}
	if err := d.screen.step("tenured on "+n.name+", started again", func(func(string)) error { return n.agent.start(ctx) }); err != nil {
		return err
	}
	if err := d.awaitFreed(ctx, n, s.pod); err != nil {
		return err
	}
	if err := d.awaitUsedBy(ctx, s.claim); err != nil {
		return err
	}
	if err := d.granted(ctx, s.claim); err != nil {
		return err
	}
	d.screen.ok("The agent has applied them. The addresses are free again; the claim, which nobody uses, still has its own.")
	return d.kube.Delete(ctx, s.claim.object)
}

// playDelAlone deletes the pod's sandbox while the API server is frozen.
func (d *demo) playDelAlone(ctx context.Context) (err error) {
	if err := d.cp.PauseAPIServer(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.cp.ResumeAPIServer()) }()
	d.screen.command("kill -STOP $(pidof kube-apiserver)")
	if err := d.silent(ctx); err != nil {
		return err
	}
	s, n := &d.networks, d.nodeA
	config, err := n.configuration()
	if err != nil {
		return err
	}
	took, err := d.screen.during("DEL of "+s.pod.name, func(func(string)) error { return n.cni.Del(ctx, config, s.pod.attachment()) })
	if err != nil {
		return fmt.Errorf("DEL of %s: %w", s.pod.name, err)
	}
	if err := errors.Join(s.interfacesLeft(), n.attachedLeft(s.pod.sandbox)); err != nil {
		return err
	}
	d.screen.ok("DEL took %s, and left nothing: no interface in the pod or on the host, no journal, no address of the default network.", millis(took))
	if err := d.showJournal(n, s.pod); err != nil {
		return err
	}
	waiting, _, err := delqueue.List(n.journal())
	if err != nil {
		return err
	}
	if len(waiting) != len(s.pod.sel) {
		return fmt.Errorf("%d DELs wait for the agent; want %d", len(waiting), len(s.pod.sel))
	}
	d.screen.ok("Tenure's own addresses wait on disk for the agent: %d DELs.", len(waiting))
	d.pods = slices.DeleteFunc(d.pods, func(p *pod) bool { return p == s.pod })
	return s.pod.ns.Delete()
}

// showAttached shows what the meta-plugin's journal has of a pod.
func (d *demo) showAttached(n *node, p *pod) error {
	entries, unread, err := n.attached().List(time.Now())
	if err != nil {
		return err
	}
	i := slices.IndexFunc(entries, func(e *attachjournal.Entry) bool { return e.ContainerID == p.sandbox })
	if i < 0 || len(unread) > 0 {
		return fmt.Errorf("the journals of %s have %d sandboxes (unread: %v), not that of %s", n.name, len(entries), unread, p.name)
	}
	rows := [][]string{{"TO BE UNDONE ON " + strings.ToUpper(n.name), "NETWORK", "INTERFACE"}}
	for _, step := range slices.Backward(entries[i].Plan.Steps) {
		rows = append(rows, []string{p.sandbox[:12] + "…", step.Name, step.IfName})
	}
	d.screen.table(rows...)
	return nil
}

// attached is the state of the node's meta-plugin.
func (n *node) attached() attachjournal.Dir {
	return attachjournal.Dir{Path: n.lib("cni/tenure-attach")}
}

// interfacesLeft reports what the pod's DEL has left of its interfaces.
func (s *several) interfacesLeft() error {
	inside, err := s.pod.ns.Interfaces()
	if err != nil {
		return err
	}
	host, err := s.pod.node.host.Interfaces()
	if err != nil {
		return err
	}
	if !slices.Equal(inside, []string{"lo"}) || !slices.Equal(host, s.before) {
		return fmt.Errorf("after DEL %s has the interfaces %v, and %s has %v; want lo, and %v as before", s.pod.name, inside, s.pod.node.name, host, s.before)
	}
	return nil
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
