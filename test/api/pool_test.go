package api_test

import (
	"fmt"
	"strings"
	"testing"
)

func pool(spec string) string { return object("IPPool", "lan", spec) }

// oneRange is a pool of one range, given as the fields after cidr.
func oneRange(cidr, fields string) string {
	return pool(fmt.Sprintf("{ranges: [{cidr: %q, %s}]}", cidr, fields))
}

func TestPoolAccepted(t *testing.T) {
	tests := []struct{ name, text string }{
		{"/8", pool(`{ranges: [{cidr: 10.0.0.0/8}]}`)},
		{"/16", pool(`{ranges: [{cidr: 10.1.0.0/16}]}`)},
		{"/24 with everything", pool(`{ranges: [{cidr: 10.0.0.0/24, start: 10.0.0.10, end: 10.0.0.200, gateway: 10.0.0.1,
		  exclude: [10.0.0.20, 10.0.0.32/28, 10.0.0.60-10.0.0.69], staticOnly: [10.0.0.100-10.0.0.120]}],
		  blockSize: 4, routes: [{dst: 192.168.0.0/16, gw: 10.0.0.2}, {dst: 0.0.0.0/0}],
		  dns: {nameservers: [10.0.0.53], domain: lab.example, search: [example], options: ["ndots:2"]}, domain: vlan-10, takeOver: Confirmed, reuseAfter: 10m}`)},
		{"the longest rest", pool(`{ranges: [{cidr: 10.0.0.0/24}], reuseAfter: 23h59m60s}`)},
		{"no rest", pool(`{ranges: [{cidr: 10.0.0.0/24}], reuseAfter: 0s}`)},
		{"/30", pool(`{ranges: [{cidr: 10.0.0.4/30}]}`)},
		{"/31", pool(`{ranges: [{cidr: 10.0.0.4/31}]}`)},
		{"/32", pool(`{ranges: [{cidr: 10.0.0.4/32}]}`)},
		{"dual stack", pool(`{ranges: [{cidr: 10.0.0.0/24}, {cidr: "fd00::/64", gateway: "fd00::1"}]}`)},
		{"IPv6 /64", pool(`{ranges: [{cidr: "2001:db8:0:7::/64", start: "2001:db8:0:7::100", end: "2001:db8:0:7:ffff::", exclude: ["2001:db8:0:7::200/120", "2001:db8:0:7::1-2001:db8:0:7::ff"]}]}`)},
		{"IPv6 in other spellings", pool(`{ranges: [{cidr: "FD00:0::/64", start: "FD00::00a", end: "fd00:0:0:0:0::b"}]}`)},
		{"IPv6 of zeros", pool(`{ranges: [{cidr: "::/96", start: "::", end: "::1"}]}`)},
		{"IPv6 with dotted end", pool(`{ranges: [{cidr: "64:ff9b::/96", start: "64:ff9b::1", end: "64:ff9b::10.0.0.1"}]}`)},
		{"order is by number", oneRange("10.0.0.0/24", "start: 10.0.0.9, end: 10.0.0.10")},
		{"order is by number, IPv6", oneRange("fd00::/64", `start: "fd00::9", end: "fd00::10"`)},
		{"gateway of the link", oneRange("fd00::/64", `gateway: "fe80::1"`)},
		{"gateway outside", oneRange("10.0.0.5/32", "gateway: 169.254.1.1")},
		{"start is end", oneRange("10.0.0.0/24", "start: 10.0.0.9, end: 10.0.0.9")},
		{"two ranges of one CIDR", pool(`{ranges: [{cidr: 10.0.0.0/24, end: 10.0.0.99}, {cidr: 10.0.0.0/24, start: 10.0.0.100}]}`)},
		{"three ranges of one CIDR", pool(`{ranges: [{cidr: 10.0.0.0/24, start: 10.0.0.100, end: 10.0.0.149}, {cidr: 10.0.0.0/24, start: 10.0.0.150}, {cidr: 10.0.0.0/24, end: 10.0.0.99}]}`)},
		{"two ranges of one IPv6 CIDR", pool(`{ranges: [{cidr: "fd00::/64", start: "fd00::1:0:0"}, {cidr: "fd00::/64", end: "fd00::ffff:ffff"}]}`)},
		{"neighbours", pool(`{ranges: [{cidr: 10.0.0.0/24}, {cidr: 10.0.1.0/24}, {cidr: "fd00::/64"}, {cidr: "fd00:0:0:1::/64"}]}`)},
		{"name of 63", object("IPPool", strings.Repeat("a", 63), `{ranges: [{cidr: 10.0.0.0/24}]}`)},
		{"name of 1", object("IPPool", "1", `{ranges: [{cidr: 10.0.0.0/24}]}`)},
		{"exclude wider than the range", oneRange("10.0.0.0/24", `exclude: [10.0.0.0/16, 10.0.0.250-10.0.1.9]`)},
		{"for some namespaces", pool(`{ranges: [{cidr: 10.0.0.0/24}], access: RBAC, namespaceSelector: {matchLabels: {team: blue, example.org/Zone_1: "", kubernetes.io/metadata.name: a},
		  matchExpressions: [{key: env, operator: In, values: [prod, ""]}, {key: x.y/z, operator: NotIn, values: [a.b_c-d]}, {key: a, operator: Exists}, {key: b, operator: DoesNotExist}]}}`)},
		{"advertised", pool(`{ranges: [{cidr: 10.0.0.0/24}], advertise: true}`)},
		{"an empty selector", pool(`{ranges: [{cidr: 10.0.0.0/24}], namespaceSelector: {}}`)},
		{"the largest selector", pool(`{ranges: [{cidr: 10.0.0.0/24}], namespaceSelector: ` + largestSelector() + `}`)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { checkAccepted(t, dryRun(t, pools, tt.text)) })
	}
}

// largestSelector is a selector with as much of everything as the schema allows.
func largestSelector() string {
	long := func(i int) string { return fmt.Sprintf("%s/%063d", strings.Repeat("a.", 126)+"a", i) }
	value := func(i int) string { return fmt.Sprintf("%q", fmt.Sprintf("%063d", i)) }
	var labels, values, expressions []string
	for i := range 64 {
		values = append(values, value(i))
	}
	for i := range 16 {
		labels = append(labels, long(i)+": "+value(i))
		expressions = append(expressions, fmt.Sprintf("{key: %s, operator: In, values: [%s]}", long(i), strings.Join(values, ",")))
	}
	return fmt.Sprintf("{matchLabels: {%s}, matchExpressions: [%s]}", strings.Join(labels, ","), strings.Join(expressions, ","))
}

// selecting is a pool with this selector.
func selecting(selector string) string {
	return pool("{ranges: [{cidr: 10.0.0.0/24}], namespaceSelector: " + selector + "}")
}

// perNode is a pool that gives each node a subnet, with this beside it.
func perNode(beside string) string { return pool("{perNode: {prefixLength: 24}, " + beside + "}") }

func TestPoolRefused(t *testing.T) {
	tests := []struct {
		name, text string
		want       []string
	}{
		{"advertised with a source", pool(`{advertise: true, source: {neutron: {subnetIDs: [6f0c2a86-6b37-4c0e-9d3a-0b5a3a3b9a55]}}}`), []string{"spec.advertise", "must not be true beside a source"}},
		{"advertised with a subnet for each node", perNode("ranges: [{cidr: 10.0.0.0/16}], advertise: true"), []string{"spec.advertise", "nor beside perNode"}},
		{"a subnet for each node, and a size of blocks", perNode("ranges: [{cidr: 10.0.0.0/16}], blockSize: 16"), []string{"spec.perNode", "stands beside a blockSize", "leave them out"}},
		{"a subnet for each node of a range with a start", perNode("ranges: [{cidr: 10.0.0.0/16, start: 10.0.0.9}]"), []string{"spec.perNode", "write the cidr alone"}},
		{"two pins of a node", pool(`{ranges: [{cidr: 10.0.0.0/16}], perNode: {prefixLength: 24, pinned: [{node: a, cidr: 10.0.1.0/24}, {node: a, cidr: 10.0.2.0/24}]}}`),
			[]string{"spec.perNode.pinned[1]: Duplicate value"}},
		{"no ranges", pool(`{ranges: []}`), []string{"spec.ranges", "at least 1"}},
		{"no spec", "apiVersion: tenure.dev/v1alpha1\nkind: IPPool\nmetadata: {name: lan}\n", []string{"spec: Required"}},
		{"too many ranges", pool(manyRanges(65, 0, v4Slice)), []string{"spec.ranges", "at most 64"}},
		{"no cidr", pool(`{ranges: [{start: 10.0.0.1}]}`), []string{"spec.ranges[0].cidr: Required"}},
		{"cidr is an address", oneRange("10.0.0.0", ""), []string{"spec.ranges[0].cidr", "is not a CIDR", "write address/length"}},
		{"cidr is a word", oneRange("lan", ""), []string{"spec.ranges[0].cidr", "is not a CIDR"}},
		{"cidr is IPv4 in IPv6", oneRange("::ffff:10.0.0.0/120", ""), []string{"spec.ranges[0].cidr", "is not a CIDR"}},
		{"host bits", oneRange("10.0.0.7/24", ""), []string{"spec.ranges[0].cidr", "host bits", "write the subnet's own address"}},
		{"host bits, IPv6", oneRange("fd00::7/64", ""), []string{"spec.ranges[0].cidr", "host bits"}},
		{"start malformed", oneRange("10.0.0.0/24", "start: 10.0.0.300"), []string{"spec.ranges[0].start", "is not an IP address", "write one such as"}},
		{"start is a CIDR", oneRange("10.0.0.0/24", "start: 10.0.0.3/24"), []string{"spec.ranges[0].start", "is not an IP address"}},
		{"start with a zone", oneRange("fe80::/64", `start: "fe80::1%eth0"`), []string{"spec.ranges[0].start", "is not an IP address"}},
		{"start outside", oneRange("10.0.0.0/24", "start: 10.0.1.5"), []string{"spec.ranges[0].start", "lies outside cidr", "write an address of 10.0.0.0/24"}},
		{"start of the other family", oneRange("10.0.0.0/24", `start: "fd00::1"`), []string{"spec.ranges[0].start", "lies outside cidr"}},
		{"end outside", oneRange("10.0.0.0/24", "end: 9.255.255.255"), []string{"spec.ranges[0].end", "lies outside cidr", "write an address of 10.0.0.0/24"}},
		{"end outside, IPv6", oneRange("fd00::/64", `end: "fd00:0:0:1::"`), []string{"spec.ranges[0].end", "lies outside cidr", "fd00::/64"}},
		{"gateway of another family", oneRange("10.0.0.0/24", "gateway: fe80::1"), []string{"spec.ranges[0].gateway", "is not of cidr's IP family"}},
		{"gateway malformed", oneRange("10.0.0.0/24", "gateway: router"), []string{"spec.ranges[0].gateway", "is not an IP address"}},
		{"start after end", oneRange("10.0.0.0/24", "start: 10.0.0.10, end: 10.0.0.9"), []string{"spec.ranges[0].end", "comes before start", "write the lower address as start"}},
		{"start after end in the second octet", oneRange("10.0.0.0/8", "start: 10.2.0.0, end: 10.1.255.255"), []string{"spec.ranges[0].end", "comes before start"}},
		{"start after end, IPv6", oneRange("fd00::/64", `start: "fd00::10", end: "fd00::9"`), []string{"spec.ranges", "end fd00::9 comes before start fd00::10", "write the lower address as start"}},
		{"start after end, IPv6 without zeros", oneRange("1:2:3:4:5:6:7:0/112", `start: "1:2:3:4:5:6:7:b", end: "1:2:3:4:5:6:7:a"`), []string{"spec.ranges", "comes before start"}},
		{"start after end, IPv6 high half", oneRange("fd00::/16", `start: "fd00:1::", end: "fd00:0:ffff::"`), []string{"spec.ranges", "comes before start"}},
		{"the same CIDR twice", pool(`{ranges: [{cidr: 10.0.0.0/24}, {cidr: 10.0.0.0/24}]}`), []string{"spec.ranges", "overlaps", "keep them apart with start and end"}},
		{"a common address", pool(`{ranges: [{cidr: 10.0.0.0/24, end: 10.0.0.100}, {cidr: 10.0.0.0/24, start: 10.0.0.100}]}`), []string{"spec.ranges", "10.0.0.0/24", "overlaps"}},
		{"one within the other", pool(`{ranges: [{cidr: 10.0.0.0/24, start: 10.0.0.10, end: 10.0.0.20}, {cidr: 10.0.0.0/24}]}`), []string{"spec.ranges", "overlaps"}},
		{"a common address, IPv6", pool(`{ranges: [{cidr: "fd00::/64", end: "fd00::1:0"}, {cidr: "fd00::/64", start: "fd00::ffff"}]}`), []string{"spec.ranges", "fd00::/64", "overlaps"}},
		{"nested CIDRs", pool(`{ranges: [{cidr: 10.0.0.0/16}, {cidr: 10.0.7.0/24}]}`), []string{"spec.ranges", "lies within another", "write one range, or two pools"}},
		{"nested CIDRs, IPv6", pool(`{ranges: [{cidr: "fd00:0:0:1::/64"}, {cidr: "fd00::/48"}]}`), []string{"spec.ranges", "lies within another"}},
		{"exclude a word", oneRange("10.0.0.0/24", "exclude: [printer]"), []string{"spec.ranges[0].exclude[0]", "is none of an address, a CIDR and first-last of one family"}},
		{"exclude open at the end", oneRange("10.0.0.0/24", "exclude: [10.0.0.1, 10.0.0.5-]"), []string{"spec.ranges[0].exclude[1]", "first-last"}},
		{"exclude with spaces", oneRange("10.0.0.0/24", "exclude: [10.0.0.5 - 10.0.0.9]"), []string{"spec.ranges[0].exclude[0]", "first-last"}},
		{"exclude of three", oneRange("10.0.0.0/24", "exclude: [10.0.0.5-10.0.0.9-10.0.0.11]"), []string{"spec.ranges[0].exclude[0]", "first-last"}},
		{"exclude of two families", oneRange("10.0.0.0/24", `exclude: ["10.0.0.5-fd00::9"]`), []string{"spec.ranges[0].exclude[0]", "first-last of one family"}},
		{"exclude empty", oneRange("10.0.0.0/24", `exclude: [""]`), []string{"spec.ranges[0].exclude[0]"}},
		{"exclude with host bits", oneRange("10.0.0.0/24", "exclude: [10.0.0.5/28]"), []string{"spec.ranges[0].exclude[0]", "host bits"}},
		{"exclude reversed", oneRange("10.0.0.0/24", "exclude: [10.0.0.10-10.0.0.9]"), []string{"spec.ranges[0].exclude[0]", "ends before it starts", "lower address first"}},
		{"exclude reversed, IPv6", oneRange("fd00::/64", `exclude: ["fd00::10-fd00::9"]`), []string{"exclude", "fd00::10-fd00::9", "ends before it starts", "lower address first"}},
		{"exclude outside", oneRange("10.0.0.0/24", "exclude: [10.0.1.5]"), []string{"spec.ranges[0].exclude", "outside 10.0.0.0/24", "remove it"}},
		{"exclude outside, CIDR", oneRange("10.0.0.0/24", "exclude: [10.0.1.0/28]"), []string{"spec.ranges[0].exclude", "outside 10.0.0.0/24"}},
		{"exclude outside, span", oneRange("10.0.0.0/24", "exclude: [10.0.1.0-10.0.1.9]"), []string{"spec.ranges[0].exclude", "outside 10.0.0.0/24"}},
		{"exclude of the other family", oneRange("10.0.0.0/24", `exclude: ["fd00::1"]`), []string{"spec.ranges[0].exclude", "outside 10.0.0.0/24"}},
		{"staticOnly malformed", oneRange("10.0.0.0/24", "staticOnly: [10.0.0]"), []string{"spec.ranges[0].staticOnly[0]", "first-last"}},
		{"staticOnly reversed", oneRange("10.0.0.0/24", "staticOnly: [10.0.0.10-10.0.0.9]"), []string{"spec.ranges[0].staticOnly[0]", "ends before it starts"}},
		{"staticOnly reversed, IPv6", oneRange("fd00::/64", `staticOnly: ["fd00::10-fd00::9"]`), []string{"staticOnly", "ends before it starts"}},
		{"staticOnly outside", oneRange("10.0.0.0/24", "staticOnly: [10.0.1.5]"), []string{"spec.ranges[0].staticOnly", "outside 10.0.0.0/24"}},
		{"block size not a power of two", pool(`{ranges: [{cidr: 10.0.0.0/24}], blockSize: 3}`), []string{"spec.blockSize", `supported values: "1", "2", "4"`}},
		{"block size 0", pool(`{ranges: [{cidr: 10.0.0.0/24}], blockSize: 0}`), []string{"spec.blockSize", "supported values"}},
		{"block size 512", pool(`{ranges: [{cidr: 10.0.0.0/8}], blockSize: 512}`), []string{"spec.blockSize", "supported values"}},
		{"name too long", object("IPPool", strings.Repeat("a", 64), `{ranges: [{cidr: 10.0.0.0/24}]}`), []string{"metadata.name", "at most 63", "without dots"}},
		{"name with a dot", object("IPPool", "lan.1", `{ranges: [{cidr: 10.0.0.0/24}]}`), []string{"metadata.name", "at most 63", "without dots"}},
		{"route with host bits", pool(`{ranges: [{cidr: 10.0.0.0/24}], routes: [{dst: 192.168.1.1/24}]}`), []string{"spec.routes[0].dst", "host bits"}},
		{"route to an address", pool(`{ranges: [{cidr: 10.0.0.0/24}], routes: [{dst: 192.168.1.1}]}`), []string{"spec.routes[0].dst", "is not a CIDR"}},
		{"route through a word", pool(`{ranges: [{cidr: 10.0.0.0/24}], routes: [{dst: 192.168.1.0/24, gw: router}]}`), []string{"spec.routes[0].gw", "is not an IP address"}},
		{"route through the other family", pool(`{ranges: [{cidr: 10.0.0.0/24}], routes: [{dst: 192.168.1.0/24, gw: "fd00::1"}]}`), []string{"spec.routes[0].gw", "family", "leave it out"}},
		{"name server malformed", pool(`{ranges: [{cidr: 10.0.0.0/24}], dns: {nameservers: [dns]}}`), []string{"spec.dns.nameservers[0]", "is not an IP address"}},
		{"dns empty", pool(`{ranges: [{cidr: 10.0.0.0/24}], dns: {}}`), []string{"spec.dns"}},
		{"reuseAfter without a unit", pool(`{ranges: [{cidr: 10.0.0.0/24}], reuseAfter: "10"}`), []string{"spec.reuseAfter", "is no time of at most 24h: write for example 10m, 90s or 1h30m"}},
		{"reuseAfter of a day and more", pool(`{ranges: [{cidr: 10.0.0.0/24}], reuseAfter: 24h1s}`), []string{"spec.reuseAfter", "is no time of at most 24h"}},
		{"reuseAfter below zero", pool(`{ranges: [{cidr: 10.0.0.0/24}], reuseAfter: "-1m"}`), []string{"spec.reuseAfter", "is no time of at most 24h"}},
		{"reuseAfter of many years", pool(`{ranges: [{cidr: 10.0.0.0/24}], reuseAfter: 9999999999999h}`), []string{"spec.reuseAfter"}},
		{"takeOver unknown", pool(`{ranges: [{cidr: 10.0.0.0/24}], takeOver: Never}`), []string{"spec.takeOver", `supported values: "Automatic", "Confirmed"`}},
		{"access unknown", pool(`{ranges: [{cidr: 10.0.0.0/24}], access: Nobody}`), []string{"spec.access", `supported values: "Everyone", "RBAC"`}},
		{"a label's key", selecting(`{matchLabels: {"a b": c}}`), []string{"spec.namespaceSelector.matchLabels", "a key that no label can have: write name or prefix/name"}},
		{"a label's key too long", selecting(`{matchLabels: {` + strings.Repeat("a", 64) + `: c}}`), []string{"spec.namespaceSelector.matchLabels", "a key that no label can have"}},
		{"a label's value", selecting(`{matchLabels: {team: "blue and red"}}`), []string{"spec.namespaceSelector.matchLabels.team", "should match"}},
		{"a requirement without its key", selecting(`{matchExpressions: [{operator: Exists}]}`), []string{"spec.namespaceSelector.matchExpressions[0].key: Required"}},
		{"a requirement's key", selecting(`{matchExpressions: [{key: "-", operator: Exists}]}`), []string{"spec.namespaceSelector.matchExpressions[0].key", "should match"}},
		{"an operator unknown", selecting(`{matchExpressions: [{key: a, operator: Gt, values: ["1"]}]}`), []string{"spec.namespaceSelector.matchExpressions[0].operator", `supported values: "In", "NotIn", "Exists", "DoesNotExist"`}},
		{"In without values", selecting(`{matchExpressions: [{key: a, operator: In}]}`), []string{"spec.namespaceSelector.matchExpressions[0].values", "is set where operator is In or NotIn, and only there"}},
		{"a range's selector with a key that is none", oneRange("10.0.0.0/24", `nodeSelector: {matchLabels: {"rack a": b}}`), []string{"spec.ranges[0].nodeSelector.matchLabels", "a key that no label can have"}},
		{"a range's selector with an operator of others", oneRange("10.0.0.0/24", `nodeSelector: {matchExpressions: [{key: rack, operator: Lt, values: ["1"]}]}`),
			[]string{"spec.ranges[0].nodeSelector.matchExpressions[0].operator", `supported values: "In", "NotIn", "Exists", "DoesNotExist"`}},
		{"a range's selector that is a text", oneRange("10.0.0.0/24", `nodeSelector: rack=a`), []string{"spec.ranges[0].nodeSelector", "must be of type object"}},
		{"Exists with values", selecting(`{matchExpressions: [{key: a, operator: Exists, values: [b]}]}`), []string{"spec.namespaceSelector.matchExpressions[0].values", "and only there"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { checkRefused(t, dryRun(t, pools, tt.text), tt.want...) })
	}
}

// A slicer cuts slice i of 64 out of one CIDR, and writes its element j of an
// address list.
type slicer func(i, j int) (cidr, start, end, gateway, element string)

func v4Slice(i, j int) (cidr, start, end, gateway, element string) {
	return "10.111.0.0/16", fmt.Sprintf("10.111.%d.0", 100+i), fmt.Sprintf("10.111.%d.255", 100+i), "10.111.100.100",
		fmt.Sprintf("10.111.%d.%d-10.111.%d.%d", 100+i, 100+j, 100+i, 100+j)
}

func v6Slice(i, j int) (cidr, start, end, gateway, element string) {
	const p = "fd00:aaaa:bbbb:cccc:"
	return p + ":/64", fmt.Sprintf(p+"1%03x:1000:1000:1000", i), fmt.Sprintf(p+"1%03x:ffff:ffff:ffff", i), p + "1000:1000:1000:1000",
		fmt.Sprintf(p+"1%03x:1000:1000:1%03x-"+p+"1%03x:1000:1000:2%03x", i, j, i, j)
}

// manyRanges is a spec of n slices of one CIDR, with lists of m elements.
func manyRanges(n, m int, s slicer) string {
	var b strings.Builder
	for i := range n {
		cidr, start, end, gateway, _ := s(i, 0)
		var list []string
		for j := range m {
			_, _, _, _, e := s(i, j)
			list = append(list, fmt.Sprintf("%q", e))
		}
		all := strings.Join(list, ",")
		fmt.Fprintf(&b, "{cidr: %q, start: %q, end: %q, gateway: %q, exclude: [%s], staticOnly: [%s]},", cidr, start, end, gateway, all, all)
	}
	return "{ranges: [" + b.String() + "]}"
}

// TestLargestPool shows that the largest pool that the schema allows does not
// exceed what the API server spends on the rules of one object.
func TestLargestPool(t *testing.T) {
	t.Run("IPv4", func(t *testing.T) { checkAccepted(t, dryRun(t, pools, pool(manyRanges(64, 64, v4Slice)))) })
	t.Run("IPv6", func(t *testing.T) { checkAccepted(t, dryRun(t, pools, pool(manyRanges(64, 64, v6Slice)))) })
	t.Run("IPv6, as many elements as the policy compares", func(t *testing.T) {
		checkAccepted(t, dryRun(t, pools, pool(manyRanges(64, 4, v6Slice))))
	})
}

func TestPoolUpdate(t *testing.T) {
	create(t, pools, pool(`{ranges: [{cidr: "fd00::/64", start: "fd00::10"}], blockSize: 2}`))
	t.Run("takeOver defaults to Automatic", func(t *testing.T) {
		o, err := cluster.Resource(pools).Get(t.Context(), "lan", getOptions)
		if err != nil {
			t.Fatal(err)
		}
		if got := o.Object["spec"].(map[string]any)["takeOver"]; got != "Automatic" {
			t.Errorf("got spec.takeOver %v; want Automatic", got)
		}
	})
	steps := []struct {
		name, patch string
		want        []string // none: accepted
	}{
		{"shrink", `{spec: {ranges: [{cidr: "fd00::/64", start: "fd00::20"}]}}`, nil},
		{"grow and add a family", `{spec: {ranges: [{cidr: "fd00::/64"}, {cidr: 10.0.0.0/24}]}}`, nil},
		{"another block size", `{spec: {blockSize: 4}}`, nil},
		{"block size left out", `{spec: {blockSize: null}}`, nil},
		{"into start after end", `{spec: {ranges: [{cidr: "fd00::/64", start: "fd00::20", end: "fd00::1"}]}}`, []string{"comes before start"}},
		{"into host bits", `{spec: {ranges: [{cidr: 10.0.0.1/24}]}}`, []string{"spec.ranges[0].cidr", "host bits"}},
		{"into overlap", `{spec: {ranges: [{cidr: "fd00::/64"}, {cidr: "fd00::/64"}]}}`, []string{"spec.ranges", "overlaps"}},
	}
	for _, s := range steps {
		t.Run(s.name, func(t *testing.T) { checkStep(t, change(t, pools, "lan", s.patch), s.want) })
	}
}

// TestPoolDomain: what is leased of a pool that has been opened counts in the domain that
// the pool names. So it names no other then, though it may come to name one. A restore may have
// taken from a pool that it was opened; then it has waited.
func TestPoolDomain(t *testing.T) {
	create(t, pools, pool(`{ranges: [{cidr: 10.0.0.0/24}]}`))
	opened := `{status: {leasing: Open, blockPrefixLengths: {ipv4: 32}, opening: "2026-01-01T12:00:00.000000000Z"}}`
	waited := `{status: {leasing: Closed, opening: null, waited: "2026-01-01T12:00:00.000000000Z"}}`
	keeps := []string{"spec.domain", "once the pool has been opened", "make another pool"}
	for _, s := range []struct {
		name, patch string
		status      bool
		want        []string
	}{
		{name: "named while it was never opened", patch: `{spec: {domain: vlan-10}}`},
		{name: "another", patch: `{spec: {domain: vlan-20}}`},
		{name: "none", patch: `{spec: {domain: null}}`},
		{name: "opened", patch: opened, status: true},
		{name: "named when it is open", patch: `{spec: {domain: vlan-10}}`},
		{name: "another when it has been opened", patch: `{spec: {domain: vlan-20}}`, want: keeps},
		{name: "none when it has been opened", patch: `{spec: {domain: null}}`, want: keeps},
		{name: "closed", patch: `{status: {leasing: Closed}}`, status: true},
		{name: "another when it is closed again", patch: `{spec: {domain: vlan-20}}`, want: keeps},
		{name: "waited, and not opened by its status", patch: waited, status: true},
		{name: "another when it has waited", patch: `{spec: {domain: vlan-20}}`, want: keeps},
		{name: "another range in it", patch: `{spec: {ranges: [{cidr: 10.0.1.0/24}]}}`},
	} {
		t.Run(s.name, func(t *testing.T) {
			var sub []string
			if s.status {
				sub = append(sub, "status")
			}
			checkStep(t, change(t, pools, "lan", s.patch, sub...), s.want)
		})
	}
}

func TestPoolStatus(t *testing.T) {
	create(t, pools, pool(`{ranges: [{cidr: 10.0.0.0/16}, {cidr: "fd00::/64"}]}`))
	const closeFirst = "close the pool first"
	steps := []struct {
		name, patch string
		want        []string
	}{
		{"open without block sizes", `{status: {leasing: Open}}`, []string{"status.leasing", "blockPrefixLengths", "write them first"}},
		{"leasing unknown", `{status: {leasing: Ajar}}`, []string{"status.leasing", "supported values"}},
		{"IPv4 block too large", `{status: {blockPrefixLengths: {ipv4: 23}}}`, []string{"status.blockPrefixLengths.ipv4", "greater than or equal to 24"}},
		{"IPv6 block too large", `{status: {blockPrefixLengths: {ipv6: 119}}}`, []string{"status.blockPrefixLengths.ipv6", "greater than or equal to 120"}},
		{"open", `{status: {observedGeneration: 1, leasing: Open, blockPrefixLengths: {ipv4: 26}, pressure: Low}}`, nil},
		{"add a family while open", `{status: {blockPrefixLengths: {ipv6: 122}}}`, nil},
		{"another size while open", `{status: {blockPrefixLengths: {ipv4: 27}}}`, []string{"status.blockPrefixLengths", closeFirst}},
		{"drop a family while open", `{status: {blockPrefixLengths: {ipv6: null}}}`, []string{"status.blockPrefixLengths", closeFirst}},
		{"drop the sizes while open", `{status: {blockPrefixLengths: null}}`, []string{"status.blockPrefixLengths"}},
		{"close and change at once", `{status: {leasing: Closed, blockPrefixLengths: {ipv4: 27}}}`, []string{"status.blockPrefixLengths", closeFirst}},
		{"leave out leasing and change at once", `{status: {leasing: null, blockPrefixLengths: {ipv4: 27}}}`, []string{"status.blockPrefixLengths", closeFirst}},
		{"remove the status", `{status: null}`, []string{"status", "must not be removed"}},
		{"counts", `{status: {counts: {capacity: 9223372036854775807, used: 3, claimed: 1, free: 65000, unreachable: 0, leases: 2}}}`, nil},
		{"counts below zero", `{status: {counts: {used: -1}}}`, []string{"status.counts.used", "greater than or equal to 0"}},
		{"pressure unknown", `{status: {pressure: Medium}}`, []string{"status.pressure", "supported values"}},
		{"close", `{status: {leasing: Closed}}`, nil},
		{"open and change at once", `{status: {leasing: Open, blockPrefixLengths: {ipv4: 27}}}`, []string{"status.blockPrefixLengths", closeFirst}},
		{"another size while closed", `{status: {blockPrefixLengths: {ipv4: 27}}}`, nil},
		{"open again", `{status: {leasing: Open}}`, nil},
	}
	for _, s := range steps {
		t.Run(s.name, func(t *testing.T) { checkStep(t, change(t, pools, "lan", s.patch, "status"), s.want) })
	}
}

// checkStep checks that err is nil where want is empty, and refuses in its words
// where not.
func checkStep(t *testing.T, err error, want []string) {
	t.Helper()
	if len(want) == 0 {
		checkAccepted(t, err)
		return
	}
	checkRefused(t, err, want...)
}
