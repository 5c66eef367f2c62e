package vifs

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/vif"
)

// words writes a plan: what is created with its wish, what is written, what is said.
func (p plan) words() (all []string) {
	for _, w := range p.create {
		all = append(all, strings.TrimSpace("create "+w.name+" of "+w.network+" for "+w.ifName+" "+w.requested))
	}
	for _, key := range slices.Sorted(maps.Keys(p.write)) {
		what := "write "
		if key != vif.AnnotationMap {
			what += key + " "
		}
		all = append(all, what+p.write[key])
	}
	for _, f := range p.faults {
		text := f.reason + " " + f.message
		if f.patient {
			text = "in a moment " + text
		}
		all = append(all, text)
	}
	return all
}

func pod(uid types.UID) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "web", UID: uid}}
}

// lan is an element of the definition team/lan, which is made, and has a claim with an address.
func lan(ifName string, change ...func(*element)) element {
	e := element{
		Selection: npwg.Selection{Namespace: "team", Name: "lan"}, ifName: ifName,
		network: &network{name: "vif.team.lan", takesMAC: true, mtu: 1400, ranges: []addrRange{
			{cidr: netip.MustParsePrefix("10.0.0.0/24"), end: netip.MustParseAddr("10.0.0.100"), gateway: netip.MustParseAddr("10.0.0.1")},
			{cidr: netip.MustParsePrefix("10.0.0.0/24"), start: netip.MustParseAddr("10.0.0.101"), gateway: netip.MustParseAddr("10.0.0.254")},
			{cidr: netip.MustParsePrefix("fd00::/64")},
		}},
		claim: &claim{uid: "c-" + types.UID(ifName), network: "vif.team.lan", ifName: ifName, owners: pod("u"), ips: []string{"10.0.0.5/24"}},
	}
	for _, f := range change {
		f(&e)
	}
	return e
}

func ours(ifName string) string { return vif.ClaimName("web", "u", ifName) }

// written is the map of interfaces as lan has them.
func written(change func(*vif.VIF), names ...string) string {
	all := vif.Map{}
	for _, name := range names {
		v := vif.VIF{
			Network: "team/lan", PodUID: "u", Claim: ours(name), ClaimUID: "c-" + name, Addresses: []string{"10.0.0.5/24"},
			Gateways: []string{"10.0.0.1"}, MAC: vif.MACOf("c-" + name), MTU: 1400,
		}
		if change != nil {
			change(&v)
		}
		all[name] = v
	}
	return all.String()
}

func noClaim(e *element)   { e.claim = nil }
func noNetwork(e *element) { e.network = nil }

// TestDecide (K4, K5): each interface has one claim, and the map is written when all have their
// addresses, once.
func TestDecide(t *testing.T) {
	waits := "VIFsNotReady interface eth1, network team/lan: "
	for name, tt := range map[string]struct {
		elements []element
		written  string
		want     []string
	}{
		"nothing selected": {},
		"K4 new":           {elements: []element{lan("eth1", noClaim)}, want: []string{"create " + ours("eth1") + " of vif.team.lan for eth1"}},
		"K4 one of two is there": {
			elements: []element{lan("eth1"), lan("eth2", noClaim)}, want: []string{"create " + ours("eth2") + " of vif.team.lan for eth2"},
		},
		"addresses asked for": {
			elements: []element{lan("eth1", noClaim, func(e *element) {
				e.IPs = []npwg.RequestedIP{{Addr: netip.MustParseAddr("10.0.0.9"), Bits: 24}, {Addr: netip.MustParseAddr("fd00::9")}}
			})},
			want: []string{"create " + ours("eth1") + " of vif.team.lan for eth1 10.0.0.9,fd00::9"},
		},
		"K5 all are there":     {elements: []element{lan("eth1"), lan("eth2")}, want: []string{"write " + written(nil, "eth1", "eth2")}},
		"K5 it is written":     {elements: []element{lan("eth1")}, written: written(nil, "eth1")},
		"K5 something differs": {elements: []element{lan("eth1")}, written: written(nil, "eth2"), want: []string{"write " + written(nil, "eth1")}},
		"K5 two families, and the other range": {
			elements: []element{lan("eth1", func(e *element) { e.claim.ips = []string{"10.0.0.101/24", "fd00::5/64"} })},
			want: []string{"write " + written(func(v *vif.VIF) {
				v.Addresses, v.Gateways = []string{"10.0.0.101/24", "fd00::5/64"}, []string{"10.0.0.254"}
			}, "eth1")},
		},
		"K5 a hardware address asked for": {
			elements: []element{lan("eth1", func(e *element) { e.MAC = "02:00:00:00:00:07" })},
			want:     []string{"write " + written(func(v *vif.VIF) { v.MAC = "02:00:00:00:00:07" }, "eth1")},
		},
		"K5 a plugin that takes none": {
			elements: []element{lan("eth1", func(e *element) { e.network.takesMAC = false })},
			want:     []string{"write " + written(func(v *vif.VIF) { v.MAC = "" }, "eth1")},
		},
		"K5 the pool's routes": {
			elements: []element{lan("eth1", func(e *element) {
				e.network.routes = []vif.Route{{Dst: "10.9.0.0/16"}, {Dst: "10.9.0.0/16", GW: "10.0.0.9"}, {Dst: "10.8.0.0/16", GW: "10.0.0.9"}, {Dst: "fd09::/64"}}
			})},
			want: []string{"write " + written(func(v *vif.VIF) {
				v.Routes = []vif.Route{{Dst: "10.9.0.0/16", GW: "10.0.0.1"}, {Dst: "10.8.0.0/16", GW: "10.0.0.9"}}
			}, "eth1")},
		},
		"K5 the hardware address of the claim's port": {
			elements: []element{lan("eth1", neutron("fa:16:3e:00:00:01"))},
			want:     []string{"write " + written(func(v *vif.VIF) { v.MAC, v.Port = "fa:16:3e:00:00:01", "p" }, "eth1")},
		},
		"K5 a port of a claim whose pool has nothing of Neutron": {
			elements: []element{lan("eth1", neutron("fa:16:3e:00:00:01"), func(e *element) { e.network.neutron = false })},
			want:     []string{"write " + written(nil, "eth1")},
		},
		"K4 a port that Neutron does not show": {
			elements: []element{lan("eth1", neutron("fa:16:3e:00:00:01"), func(e *element) { e.claim.portShown = false })},
			want: []string{"in a moment " + waits + "IPAMClaim " + ours("eth1") +
				": Neutron has not shown the port that its annotation tenure.dev/port tells: see the condition SourceReady of IPPool subnets"},
		},
		"K4 no port yet": {
			elements: []element{lan("eth1", neutron(""))},
			want:     []string{"in a moment " + waits + "IPAMClaim " + ours("eth1") + " has no annotation tenure.dev/port yet: the interface needs the hardware address of its port in Neutron"},
		},
		"K4 a port that cannot be read": {
			elements: []element{lan("eth1", neutron(""), func(e *element) { e.claim.portFault = errors.New("odd") })},
			want:     []string{"in a moment " + waits + "IPAMClaim " + ours("eth1") + ": odd"},
		},
		"no addresses yet": {
			elements: []element{lan("eth1", func(e *element) { e.claim.ips = nil }), lan("eth2")},
			want:     []string{"in a moment " + waits + "IPAMClaim " + ours("eth1") + " has no addresses yet, and does not say why: does the controller run, and is there one network vif.team.lan alone?"},
		},
		"addresses of another pool": {
			elements: []element{lan("eth1", func(e *element) { e.claim.ips = []string{"10.7.0.5/24"} })},
			want:     []string{"in a moment " + waits + "IPAMClaim " + ours("eth1") + " has addresses that the pool of the definition has not: make the pod again, if the pool was changed"},
		},
		"a pod that has all while its definition is made anew": {elements: []element{lan("eth1", noNetwork)}, written: written(nil, "eth1")},
		"a pod that has all while its pool is another": {
			elements: []element{lan("eth1", func(e *element) { e.claim.ips = []string{"10.7.0.5/24"} })}, written: written(nil, "eth1"),
		},
		"its claim has none": {
			elements: []element{lan("eth1", func(e *element) { e.claim.ips, e.claim.failed = nil, "SubnetExhausted: full" })},
			want:     []string{waits + "IPAMClaim " + ours("eth1") + ": SubnetExhausted: full"},
		},
		"its claim has others": {
			elements: []element{lan("eth1", func(e *element) { e.claim.failed = "IPAddressConflict: another's" })},
			want:     []string{waits + "IPAMClaim " + ours("eth1") + ": IPAddressConflict: another's"},
		},
		"its claim is deleted": {
			elements: []element{lan("eth1", func(e *element) { e.claim.deleting = true })},
			want:     []string{waits + "IPAMClaim " + ours("eth1") + " is being deleted"},
		},
		"nothing is made yet": {
			elements: []element{lan("eth1", noNetwork, noClaim), lan("eth2", noClaim)},
			want: []string{
				"create " + ours("eth2") + " of vif.team.lan for eth2",
				"in a moment " + waits + "nothing is made of its definition yet: Events of the definition say why",
			},
		},
		"K4 somebody else's": {
			elements: []element{lan("eth1", func(e *element) { e.claim.owners = pod("earlier") })},
			want:     []string{"VIFClaimTaken interface eth1, network team/lan: IPAMClaim " + ours("eth1") + " is not the pod's, and is left alone: delete it"},
		},
		"a claim that it refers to": {
			elements: []element{lan("eth1", func(e *element) { e.Claim, e.claim.owners, e.claim.ifName = "mine", nil, "" })},
			want:     []string{"write " + written(func(v *vif.VIF) { v.Claim = "mine" }, "eth1")},
		},
		"a claim that it refers to, and is not there": {
			elements: []element{lan("eth1", noClaim, func(e *element) { e.Claim = "mine" })},
			want:     []string{waits + "there is no IPAMClaim mine: make it"},
		},
		"a claim of another network": {
			elements: []element{lan("eth1", func(e *element) { e.Claim, e.claim.network = "mine", "wan" })},
			want:     []string{`VIFClaimTaken interface eth1, network team/lan: IPAMClaim mine is of network "wan", and the interface needs one of "vif.team.lan"`},
		},
		"a claim of another interface": {
			elements: []element{lan("eth1", func(e *element) { e.Claim, e.claim.ifName = "mine", "net7" })},
			want:     []string{"VIFClaimTaken interface eth1, network team/lan: IPAMClaim mine is for interface net7"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := facts{namespace: "team", name: "web", uid: "u", written: tt.written, elements: tt.elements, others: []string{"net3"}}
			if got := decide(f).words(); !slices.Equal(got, tt.want) {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

// neutron has the pool's addresses be Neutron's, and the claim a port, if there is a hardware
// address.
func neutron(mac string) func(*element) {
	return func(e *element) {
		e.network.neutron, e.network.pool, e.network.poolUID = true, "subnets", "pool-uid"
		if mac != "" {
			e.claim.port, e.claim.portShown = vif.Port{ID: "p", MAC: mac, Network: "net-uid"}, true
		}
	}
}

// TestInKuryrsWords (K5): where it is asked for, the interfaces are written in Kuryr's words with
// the map, with one call; and what another has written there is left.
func TestInKuryrsWords(t *testing.T) {
	plain := lan("eth1", func(e *element) { e.network.plugin, e.network.poolUID = "macvlan", "pool-uid" })
	port := lan("eth2", neutron("fa:16:3e:00:00:01"))
	f := facts{namespace: "team", name: "web", uid: "u", asksKuryr: true, kuryr: `{"eth0":{"of":"another"}}`, elements: []element{plain, port}}
	p := decide(f)
	text := p.write[vif.AnnotationKuryrMap]
	for _, part := range []string{`"eth0":{"of":"another"}`, `"eth1":{"versioned_object.name":"VIFMacvlanNested"`, `"id":"pool-uid"`, `"id":"p"`, `"id":"net-uid"`} {
		if !strings.Contains(text, part) {
			t.Errorf("%s is not in %s", part, text)
		}
	}
	if len(p.write) != 2 || len(p.faults) > 0 {
		t.Errorf("the plan is %q; want both annotations", p.words())
	}
	f.written, f.kuryr = p.write[vif.AnnotationMap], text
	if got := decide(f).words(); len(got) > 0 {
		t.Errorf("once they are there: %q", got)
	}
	f.kuryr = ""
	if got := decide(f).write; len(got) != 1 || got[vif.AnnotationKuryrMap] == "" {
		t.Errorf("without that one: %q", got)
	}
	f.kuryr = "[]"
	want := []string{"KuryrAnnotationLeft annotation openstack.org/kuryr-vif is left as it is, and does not tell the interfaces: it is no JSON object: remove it"}
	if got := decide(f).words(); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	f.asksKuryr = false
	if got := decide(f).words(); len(got) > 0 {
		t.Errorf("where it is not asked for: %q", got)
	}
}

// TestRefused (K6, K8): a pod of which something cannot be has no claim at all, and the reason is
// said.
func TestRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*facts)
		want   string
	}{
		"K8 a static pod":          {func(f *facts) { f.static = true }, "a static pod has no interfaces"},
		"K8 on the node's network": {func(f *facts) { f.hostNetwork = true }, "has its node's network"},
		"an annotation that cannot be read": {
			func(f *facts) { f.unreadable = errors.New("one\ntwo") }, "annotation k8s.v1.cni.cncf.io/networks cannot be read: one; two",
		},
		"K8 the default network's": {func(f *facts) { f.elements[1].ifName = "eth0" }, "network team/lan: eth0 is the interface of the default network"},
		"one name twice":           {func(f *facts) { f.elements[1].ifName = "eth1" }, "another element has the interface eth1"},
		"the name of another's":    {func(f *facts) { f.others = []string{"eth2"} }, "another element has the interface eth2"},
		"one claim twice": {
			func(f *facts) { f.elements[0].Claim, f.elements[1].Claim = "mine", "mine" }, "its claim mine is that of interface eth1, too",
		},
		"a claim and addresses": {
			func(f *facts) {
				f.elements[1].Claim, f.elements[1].IPs = "mine", []npwg.RequestedIP{{Addr: netip.MustParseAddr("10.0.0.9")}}
			}, "it has both ips and ipam-claim-reference",
		},
		"not allowed": {func(f *facts) { f.elements[1].forbidden = "not yours" }, "network team/lan: not yours"},
		"a plugin that takes no hardware address": {
			func(f *facts) { f.elements[1].network.takesMAC, f.elements[1].MAC = false, "02:00:00:00:00:07" }, "cannot be given the hardware address",
		},
		"a hardware address beside Neutron's": {
			func(f *facts) {
				neutron("")(&f.elements[1])
				f.elements[1].MAC = "02:00:00:00:00:07"
			},
			"the addresses of IPPool subnets are Neutron's, which decides the hardware address of a port as well",
		},
		"too many": {
			func(f *facts) {
				for i := range maxElements {
					f.elements = append(f.elements, lan(fmt.Sprintf("eth%d", i+3), noClaim))
				}
			}, "has 34 elements whose interfaces the control plane decides: 32 can be",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := facts{namespace: "team", name: "web", uid: "u", elements: []element{lan("eth1", noClaim), lan("eth2", noClaim)}}
			tt.change(&f)
			p := decide(f)
			if len(p.create) > 0 || len(p.write) > 0 || len(p.faults) != 1 || p.faults[0].reason != ReasonRefused ||
				!strings.Contains(p.faults[0].message, tt.want) || !strings.HasSuffix(p.faults[0].message, ": no interface is made") {
				t.Errorf("got %q; want it refused with %q", p.words(), tt.want)
			}
		})
	}
}

// TestFew: the cache keeps what is read, and nothing of a pod that selects nothing.
func TestFew(t *testing.T) {
	all := map[string]string{npwg.AnnotationNetworks: "lan", vif.AnnotationMap: "{}", vif.AnnotationKuryrMap: "{}", "kubernetes.io/config.mirror": "x", "other": "y"}
	if got := Few(all); len(got) != 4 || got["other"] != "" {
		t.Errorf("kept are %v", got)
	}
	delete(all, npwg.AnnotationNetworks)
	if got := Few(all); got != nil {
		t.Errorf("of one that selects nothing %v are kept", got)
	}
}
