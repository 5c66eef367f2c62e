package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/delqueue"
	"github.com/tenure-ipam/tenure/ipam/node/sched"
)

// podArgs is CNI_ARGS of calls about p.
func podArgs(of *simPod) string {
	p := of.ref
	return fmt.Sprintf("IgnoreUnknown=1;K8S_POD_NAMESPACE=%s;K8S_POD_NAME=%s;K8S_POD_UID=%s", p.Namespace, p.Name, p.UID)
}

// network returns the name and the configuration of the network of s: that of its claim, or
// the nodes' pool.
func (s *sandbox) network() (name, config string) {
	name = "lan"
	if s.pod.old {
		name = oldNetwork
	}
	if s.pod.claim != "" {
		if c, ok := s.node.w.networkOf(s.pod.claim); ok {
			name = c
		}
	}
	ips := ""
	if s.pod.exact.IsValid() {
		ips = fmt.Sprintf(`, "runtimeConfig": {"ips": ["%v"]}`, s.pod.exact)
	}
	return name, configOf(name, ips)
}

// ipams are what the configurations of networks say of their ipam.
var ipams = map[string]string{
	"vlan": `"type": "tenure", "pool": "claims"`, "dual": `"type": "tenure", "pools": ["claims", "six"]`,
	"lan": `"type": "tenure", "pool": "lan"`, "others": `"type": "host-local"`,
	oldNetwork: `"type": "tenure", "pool": "lan"`, ownNetwork: `"type": "tenure", "pool": "lan"`,
	claimNetwork: `"type": "tenure", "pools": ["lan", "claims", "six"]`,
}

// configOf returns the configuration of a network, with more after its ipam.
func configOf(name, more string) string {
	return fmt.Sprintf(`{"cniVersion": "1.1.0", "name": %q, "type": "bridge", "ipam": {%s}%s}`, name, ipams[name], more)
}

// networkOf returns the network of a claim, as it is or was.
func (w *world) networkOf(claim string) (string, bool) {
	c, _ := w.api.readClaim(claim)
	if c.Network == "" || c.Network == "others" {
		return "", false
	}
	return c.Network, true
}

// request is a call of a plugin about s.
func (s *sandbox) request(verb agentapi.Verb) agentapi.Request {
	_, config := s.network()
	if s.config == "" { // it stays what it was
		s.config = config
	}
	return agentapi.Request{
		Version: agentapi.Version, Verb: verb, ContainerID: s.cid, Netns: netnsPath(s.cid), NetnsID: s.cid, IfName: "net1", Args: podArgs(s.pod),
		Config: json.RawMessage(s.config),
	}
}

// call has the agent serve a request; done runs with its response, unless the process dies.
func (a *simAgent) call(req agentapi.Request, done func(agentapi.Response)) {
	a.serve(func() func() {
		resp := a.agent.Serve(context.Background(), req)
		return func() {
			if resp.After != nil {
				resp.After()
			}
			a.n.refresh()
			done(resp)
		}
	})
}

// serve has the agent answer a call; what answer returns runs when it has, unless the process dies.
func (a *simAgent) serve(answer func() (done func())) {
	a.Go(func() {
		a.Wait(context.Background(), sched.Forever, a.up)
		done := answer()
		if a.dead {
			panic(processEnd{})
		}
		a.mayDie()
		done()
	})
}

// add has the agent serve the ADD of s.
func (n *simNode) add(s *sandbox) {
	s.since = n.heard.now()
	if s.hasDevice() {
		n.addDevice(s)
		return
	}
	n.agent.call(s.request(agentapi.Add), func(resp agentapi.Response) {
		if resp.Error != nil {
			n.w.logf("%s: ADD of %s: %v", n.machine, s.cid, resp.Error)
			n.answerAdd(s, nil)
			return
		}
		att, ok := n.disk.atts[s.key()]
		if !ok {
			n.w.fail(I2, "the ADD of %v was answered, and nothing is recorded", s)
			return
		}
		for _, ip := range resp.Result.IPs {
			if !att.has(ip.Address.Addr()) {
				n.w.fail(I2, "the ADD of %v was answered %v, and %v is recorded", s, ip.Address, att.addrs)
			}
		}
		n.answerAdd(s, &att)
	})
}

// del has the agent serve a DEL.
func (n *simNode) del(s *sandbox) {
	if n.w.fault == "M29" { // whatever the pod has
		for _, o := range n.with(func(o *sandbox) bool { return o != s && o.pod == s.pod }) {
			n.agent.call(o.request(agentapi.Del), func(agentapi.Response) {})
		}
	}
	a := n.agent
	a.dels = append(a.dels, s)
	a.call(s.request(agentapi.Del), func(resp agentapi.Response) {
		a.dels = slices.DeleteFunc(a.dels, func(o *sandbox) bool { return o == s })
		if resp.Error != nil {
			n.w.logf("%s: DEL of %s: %v", n.machine, s.cid, resp.Error)
			if !n.full {
				n.journalDel(s)
			}
		}
	})
}

// journalDel is what the plugin does with a DEL that no agent has served.
func (n *simNode) journalDel(s *sandbox) {
	n.w.logf("%s: journals DEL of %s", n.machine, s.cid)
	network, _ := s.network()
	_, err := delqueue.Write(n.journalDir(), delqueue.Entry{Network: network, ContainerID: s.cid, IfName: "net1", Netns: netnsPath(s.cid), Time: n.now().Wall})
	must(err)
}

// journalled returns how many DELs the journal has.
func (n *simNode) journalled() int {
	entries, _, err := delqueue.List(n.journalDir())
	must(err)
	return len(entries)
}

// collect has the agent serve a GC of every network.
func (n *simNode) collect(valid map[string]bool) {
	var refs []string
	for _, cid := range slices.Sorted(maps.Keys(valid)) {
		refs = append(refs, fmt.Sprintf(`{"containerID": %q, "ifname": "net1"}`, cid))
	}
	for _, network := range []string{"lan", "vlan", "dual", oldNetwork} {
		config := fmt.Sprintf(`{"cniVersion": "1.1.0", "name": %q, "type": "bridge", "ipam": {"type": "tenure", "pool": "lan"}, "cni.dev/valid-attachments": [%s]}`, network, strings.Join(refs, ", "))
		n.agent.call(agentapi.Request{Version: agentapi.Version, Verb: agentapi.GC, Config: json.RawMessage(config)}, func(resp agentapi.Response) {
			if resp.Error != nil {
				n.w.logf("%s: GC: %v", n.machine, resp.Error)
			}
		})
	}
}
