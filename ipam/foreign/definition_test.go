package foreign

import (
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"
)

// TestOfOtherPrograms: a definition of another IPAM is read as that IPAM's program reads it. What
// Tenure would refuse is said, and hides no range.
func TestOfOtherPrograms(t *testing.T) {
	const all = "0.0.0.0-255.255.255.255,::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"
	for _, tt := range []struct {
		ipam    string
		takes   string
		objects string
		refused string // a part of why Tenure refuses it
	}{
		{`{"type":"whereabouts","range":"10.0.0.0/24"}`, "10.0.0.0-10.0.0.255", "10.0.0.0-24", ""},
		{`{"type":"whereabouts","range":"10.0.0.0/24","enable_l3":true}`, "10.0.0.0-10.0.0.255", "10.0.0.0-24", "ipam.enable_l3: is not supported"},
		{`{"type":"whereabouts","range":"10.0.0.0/24","comment":"ours"}`, "10.0.0.0-10.0.0.255", "10.0.0.0-24", ""},
		{`{"type":"whereabouts","range":"10.0.0.0/24","exclud":["10.0.0.5/32"]}`, "10.0.0.0-10.0.0.255", "10.0.0.0-24", "ipam.exclud"},
		{`{"type":"whereabouts","range":"10.0.0.0/24","subnet":7,"ranges":"x"}`, "10.0.0.0-10.0.0.255", "10.0.0.0-24", "ipam"},
		{`{"type":"whereabouts","Range":"010.0.0.0/24","range_start":"10.0.0.8","range_end":"010.0.0.9"}`, "10.0.0.8-10.0.0.9", "10.0.0.0-24", "ipam"},
		{`{"type":"whereabouts","range":"10.0.0.0/24","range_start":"x","range_end":"10.0.1.1"}`, "10.0.0.0-10.0.0.255", "10.0.0.0-24", "range_start"},
		{`{"type":"whereabouts","range":"10.0.0.4-10.0.0.9/24","exclude":["10.0.0.6/32","10.0.0.8","x"]}`, "10.0.0.4-10.0.0.5,10.0.0.7-10.0.0.7,10.0.0.9-10.0.0.9", "10.0.0.0-24", "exclude"},
		{`{"type":"whereabouts","ipRanges":[{"range":"10.0.0.0/24","x":1},{"range":"fd00::/64"}]}`, "10.0.0.0-10.0.0.255,fd00::-fd00::ffff:ffff:ffff:ffff", "10.0.0.0-24 fd00---64", ""},
		{`{"type":"host-local","subnet":"10.0.0.0/24","rangeStart":"10.0.0.9","range":"x","comment":""}`, "10.0.0.9-10.0.0.255", "", "range"},
		{`{"type":"host-local","ranges":[[{"subnet":"10.0.0.0/24","rangeEnd":"10.0.0.9","x":1}],[{"subnet":"10.0.1.0/31"}]]}`, "10.0.0.0-10.0.0.9,10.0.1.0-10.0.1.1", "", "x"},

		{`{"type":"tenure","mode":"local","subnet":"10.0.0.0/24","rangeStart":"10.0.0.9"}`, "10.0.0.9-10.0.0.255", "", ""},
		{`{"type":"tenure","mode":"local","range":"10.0.0.0/24","range_end":"10.0.0.9"}`, "10.0.0.0-10.0.0.9", "10.0.0.0-24", ""},

		{`{"type":"whereabouts"}`, all, "", "ipam"},
		{`{"type":"whereabouts","range":7}`, all, "", "ipam"},
		{`{"type":"whereabouts","range":"10.0.0.0/33"}`, all, "", "ipam.range"},
		{`{"type":"whereabouts","range":"10.0.0.0/24","ipRanges":[{"range":"10.0.1.0"}]}`, all, "10.0.0.0-24", "ipam.ipRanges"},
		{`{"type":"host-local"}`, all, "", "ipam"},
		{`{"type":"host-local","ranges":[[{"subnet":"10.0.0.0/24"},{"subnet":5}]]}`, all, "", "ipam.ranges"},
	} {
		d := definition("d", tt.ipam)
		if d.Fault != "" || d.Takes == nil {
			t.Errorf("%s: fault %q, takes %v", tt.ipam, d.Fault, d.Takes)
			continue
		}
		var takes, objects []string
		for _, r := range d.Takes.Ranges() {
			takes = append(takes, r.String())
		}
		for _, o := range d.Whereabouts {
			objects = append(objects, o.Name)
		}
		if got := strings.Join(takes, ","); got != tt.takes || (d.Unread != "") != (tt.takes == all) {
			t.Errorf("%s takes %s, unread %q; want %s", tt.ipam, got, d.Unread, tt.takes)
		}
		if got := strings.Join(objects, " "); got != tt.objects {
			t.Errorf("%s: IPPools %s; want %s", tt.ipam, got, tt.objects)
		}
		if (d.Refused != "") != (tt.refused != "") || !strings.Contains(d.Refused, tt.refused) {
			t.Errorf("%s: Tenure refuses it: %q; want %q", tt.ipam, d.Refused, tt.refused)
		}
	}
}

// A definition that its own IPAM can use keeps the pool closed, however Tenure reads it, and so
// does one whose ranges cannot be read. Tenure's own is read strictly.
func TestNoDefinitionVanishes(t *testing.T) {
	for _, tt := range []struct {
		ipam string
		want bool
	}{
		{`{"type":"whereabouts","range":"10.0.0.0/24","enable_l3":true}`, true},
		{`{"type":"whereabouts","range":"10.0.0.0/24","exclud":["10.0.0.5/32"]}`, true},
		{`{"type":"whereabouts","range":"10.1.0.0/24","exclud":["10.1.0.5/32"]}`, false},
		{`{"type":"whereabouts","range":"10.0.0.0/33"}`, true},
		{`{"type":"tenure","mode":"local","range":"10.0.0.0/24"}`, true},
		{`{"type":"static","addresses":[{"address":"10.0.0.7/24"}]}`, true},
		{`{"type":"static","addresses":[{"address":"10.1.0.7/24"}]}`, false},
		{`{"type":"whereabouts","range":"10.1.0.0/24","addresses":[{"address":"10.0.0.7/24"}]}`, true},
	} {
		d := definition("d", tt.ipam)
		if by, _ := lan(t).Others([]Definition{d}); (len(by) > 0) != tt.want {
			t.Errorf("%s: in the way: %v; want %v", tt.ipam, by, tt.want)
		}
		if segment := lan(t).Segment([]Definition{d}); (len(segment) > 0) != tt.want {
			t.Errorf("%s: segment %v; want it there: %v", tt.ipam, segment, tt.want)
		}
	}
	labelled := definition("d", `{"type":"tenure","pools":{"byNamespace":"tenure.dev/pool"}}`) // it may be of any pool
	if segment := lan(t).Segment([]Definition{labelled}); len(segment) != 1 || len(labelled.Pools) > 0 {
		t.Errorf("segment %v; want the definition whose pool labels name, which is said to be of no other: %v", segment, labelled.Pools)
	}
	labelled.Domain = "elsewhere"
	if segment := lan(t).Segment([]Definition{labelled}); len(segment) > 0 {
		t.Errorf("segment %v; want none of another domain", segment)
	}
	if d := definition("d", `{"type":"tenure","range":"10.0.0.0/24","exclud":["10.0.0.5/32"]}`); d.Fault == "" {
		t.Error("Tenure's own section with a misspelled key has no fault")
	}
	// By what Tenure refuses it gives nothing. It is of the segment of what it was before.
	for ipam, want := range map[string]bool{
		`{"type":"tenure","range":"10.0.0.0/24","exclud":["10.0.0.5/32"]}`: true,
		`{"type":"tenure","range":"10.1.0.0/24","exclud":["10.0.0.5/32"]}`: false,
		`{"type":"tenure","pool":"lan","range":"10.9.0.0/24"}`:             true,
		`{"type":"tenure","pool":"other","range":"10.0.0.0/24"}`:           false,
		`{"type":"tenure","rang":"10.1.0.0/24"}`:                           true, // nothing of it can be read
	} {
		d := definition("d", ipam)
		segment := lan(t).Segment([]Definition{d})
		if by, _ := lan(t).Others([]Definition{d}); d.Fault == "" || len(by) > 0 || (len(segment) > 0) != want {
			t.Errorf("%s: fault %q, in the way %v, segment %v; want it there: %v", ipam, d.Fault, by, segment, want)
		}
	}
	// Of static a pod may ask for any address of the subnet, with or without the capability ips.
	for _, capabilities := range []string{`{}`, `{"ips":true}`, `{"ips":false}`} {
		d := ReadDefinition("ns", "d", `{"type":"macvlan","capabilities":`+capabilities+`,"ipam":{"type":"static","addresses":[{"address":"10.0.0.9/24"}]}}`, nil)
		if by, all := lan(t).Others([]Definition{d}); len(by) == 0 || !all.Contains(netip.MustParseAddr("10.0.0.77")) || !d.AnyAddress {
			t.Errorf("static with the capabilities %s may give %v, any that is asked for: %v", capabilities, all, d.AnyAddress)
		}
	}
	if d := ReadDefinition("ns", "d", " ", nil); !strings.Contains(d.Fault, "no configuration of its own") {
		t.Errorf("of a definition without a configuration it says %q", d.Fault)
	}
	long := definition("d", fmt.Sprintf(`{"type":"whereabouts","range":%q}`, strings.Repeat("x", 10_000)))
	if n := len(long.By()); n > 300 {
		t.Errorf("what is said of it has %d bytes; want it short: it goes into a status", n)
	}
}

// TestReadsManyRanges: what reads a definition takes as its length does. Anybody may write many
// ranges into one.
func TestReadsManyRanges(t *testing.T) {
	allocates := func(n int) uint64 {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,{"range":"10.%d.%d.%d/32","exclude":["::"]}`, i/32768, i/128%256, i%128*2)
		}
		config := fmt.Sprintf(`{"name":"x","type":"macvlan","ipam":{"type":"whereabouts","ipRanges":[%s]}}`, b.String()[1:])
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		d := ReadDefinition("ns", "x", config, nil)
		runtime.ReadMemStats(&after)
		if len(d.Takes.Ranges()) != n {
			t.Errorf("of %d ranges it reads %d", n, len(d.Takes.Ranges()))
		}
		return after.TotalAlloc - before.TotalAlloc
	}
	if one, four := allocates(1000), allocates(4000); four > 8*one {
		t.Errorf("a definition of four times as many ranges takes %d bytes, and not %d", four, 4*one)
	}
}
