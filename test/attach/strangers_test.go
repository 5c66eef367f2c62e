package attach_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/test/cninet"
)

// own has a network of the lan get its addresses of a plugin that is called tenure.
func (l lan) own(t *testing.T, plugin map[string]any) map[string]any {
	t.Helper()
	conf := l.network(plugin)
	plugin["ipam"].(map[string]any)["type"] = "tenure" //nolint:forcetypeassert // as network makes it
	must(t, os.MkdirAll(l.path("bin"), 0o755))
	for _, dir := range pluginDirs {
		if path := filepath.Join(dir, "static"); exists(path) {
			must(t, os.Symlink(path, l.path("bin", "tenure")))
		}
	}
	l.config["binDir"] = l.path("bin")
	return conf
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// gives an interface of a namespace an address, unproved.
func give(t *testing.T, ns cninet.NS, ifName string, a netip.Addr) {
	t.Helper()
	must(t, ns.Do(func() error {
		link, err := netlink.LinkByName(ifName)
		if err != nil {
			return err
		}
		p, err := netlink.ParseAddr(netip.PrefixFrom(a, map[bool]int{true: 24, false: 64}[a.Is4()]).String())
		if err != nil {
			return err
		}
		p.Flags = unix.IFA_F_NODAD
		return netlink.AddrAdd(link, p)
	}))
}

// TestStrangerIsFound: a pod that is given an address which somebody on the segment has is not
// attached. The agent hears who that is, once the address is free. An agent that is not told
// anything asks for nothing.
func TestStrangerIsFound(t *testing.T) {
	for name, tt := range map[string]struct {
		has    netip.Addr // the neighbour
		bridge bool       // the node's own bridge has it
		silent bool       // the agent has nothing asked for
	}{
		"IPv4": {has: moved4}, "IPv6": {has: moved6}, "nobody": {}, "the bridge itself": {has: moved4, bridge: true}, "not asked for": {has: moved4, silent: true},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLAN(t)
			l.define("ns", "lan", l.own(t, map[string]any{"type": "bridge", "bridge": l.bridge}))
			l.selects("p", "lan")
			where, ifName := l.neighbour, "eth0"
			if tt.bridge {
				where, ifName = cninet.NS{}, l.bridge
			}
			if tt.has.IsValid() {
				give(t, where, ifName, tt.has)
			}
			if !tt.silent {
				for _, a := range []netip.Addr{moved4, moved6} {
					l.agent.unproved = append(l.agent.unproved, agentapi.Unproved{IfName: "net1", Addr: a})
				}
			}
			ns := netns(t, l.bridge+"-pod")
			s := sandboxOf{pod: "p", netns: ns.Path()}
			if !tt.has.IsValid() || tt.silent {
				l.ok("ADD", s)
				if told := l.agent.told(); len(told) != 1 && !tt.silent || tt.silent && len(told) > 0 || !tt.silent && !told[0].Proved {
					t.Errorf("the agent was told %+v", told)
				}
				l.ok("DEL", s)
				return
			}
			mac := macIn(t, where, ifName).String()
			began := time.Now()
			if f := l.fails("ADD", s, tt.has.String(), mac, "the next try gets another"); f.Code != 11 {
				t.Errorf("code %d; want 11", f.Code)
			}
			t.Logf("after %v", time.Since(began))
			if has, err := ns.HasInterface("net1"); err != nil || has {
				t.Errorf("the attachment is there: %t, %v", has, err)
			}
			l.ok("DEL", s)
			l.clean()
			told := l.agent.told()
			if len(told) != 1 || !slices.Equal(told[0].Found, []agentapi.Stranger{{Addr: tt.has, MAC: mac}}) {
				t.Errorf("the agent was told %+v; want %s of %v", told, tt.has, mac)
			}
			if r := l.reported(1)[0]; len(r.Warnings) != 1 || r.Warnings[0].Reason != "AddressInUse" || !strings.Contains(r.Warnings[0].Message, mac) || len(r.Status) > 0 {
				t.Errorf("the pod's user is told %+v", r)
			}
		})
	}
}
