package api_test

import (
	"strings"
	"testing"
)

const (
	podText     = "pod: {namespace: ns, name: p, uid: pu, owner: {kind: StatefulSet, name: sts, uid: su}}, interface: net1"
	useText     = "use: {claim: {namespace: ns, name: vm.lan.net1, uid: cu}, " + podText + "}"
	requestText = "request: {" + podText + ", wants: [{pool: lan, ranges: [10.0.0.1-10.0.0.254]}, {pool: lan, ranges: [\"fd00::1-fd00::ffff\"]}]}"
	ofNode      = "protocol: 1, node: a, store: s1, term: 3, turn: 1"
)

func subLease(name, fields string) string {
	return object("IPSubLease", name, "{"+ofNode+", "+fields+"}")
}

func TestSubLeaseAccepted(t *testing.T) {
	tests := []struct{ name, text string }{
		{"use 0", subLease("cu.0", useText)},
		{"use 1", subLease("cu.1", useText)},
		{"use by a pod of nobody", subLease("cu.0", strings.Replace(useText, ", owner: {kind: StatefulSet, name: sts, uid: su}", "", 1))},
		{"request", subLease("4f2a-x7", requestText)},
		{"request with as many ranges as there may be", subLease("4f2a-x7", "request: {"+podText+", wants: ["+
			strings.Repeat("{pool: lan, ranges: ["+strings.Repeat(`"fd00:aaaa:bbbb:cccc:dddd:eeee:1111:2200-fd00:aaaa:bbbb:cccc:dddd:eeee:1111:22ff",`, 256)+"]},", 16)+"]}")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { checkAccepted(t, dryRun(t, subLeases, tt.text)) })
	}
}

func TestSubLeaseRefused(t *testing.T) {
	const either = "must have exactly one of use and request"
	tests := []struct {
		name, text string
		want       []string
	}{
		{"use and request", subLease("cu.0", useText+", "+requestText), []string{"spec", either}},
		{"neither", subLease("x", "term: 3"), []string{"spec", either}},
		{"protocol 0", strings.Replace(subLease("cu.0", useText), "protocol: 1", "protocol: 0", 1), []string{"spec.protocol", "greater than or equal to 1"}},
		{"no node", strings.Replace(subLease("cu.0", useText), "node: a, ", "", 1), []string{"spec.node: Required"}},
		{"no store", strings.Replace(subLease("cu.0", useText), "store: s1, ", "", 1), []string{"spec.store: Required"}},
		{"a third use", subLease("cu.2", useText), []string{"metadata.name must be the claim's UID with .0 or .1"}},
		{"a use under another claim's name", subLease("other.0", useText), []string{"metadata.name must be the claim's UID"}},
		{"a request under a use's name", subLease("cu.0", requestText), []string{"metadata.name", "no dot for a request"}},
		{"nothing wanted", subLease("x", "request: {"+podText+", wants: []}"), []string{"spec.request.wants", "at least 1"}},
		{"wanted from nowhere", subLease("x", "request: {"+podText+", wants: [{pool: lan, ranges: []}]}"), []string{"spec.request.wants[0].ranges", "at least 1"}},
		{"wanted an address", subLease("x", "request: {"+podText+", wants: [{pool: lan, ranges: [10.0.0.1]}]}"), []string{"spec.request.wants[0].ranges[0]", "is not first-last", "10.0.0.10-10.0.0.19"}},
		{"wanted a word", subLease("x", "request: {"+podText+", wants: [{pool: lan, ranges: [a-b]}]}"), []string{"spec.request.wants[0].ranges[0]", "is not first-last"}},
		{"wanted across families", subLease("x", "request: {"+podText+", wants: [{pool: lan, ranges: [\"10.0.0.1-fd00::1\"]}]}"), []string{"spec.request.wants[0].ranges[0]", "first-last of one family"}},
		{"interface name too long", subLease("x", strings.Replace(requestText, "net1", "a234567890123456", 1)), []string{"spec.request.interface", "more than 15"}},
		{"pod without UID", subLease("x", strings.Replace(requestText, ", uid: pu", "", 1)), []string{"spec.request.pod.uid: Required"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { checkRefused(t, dryRun(t, subLeases, tt.text), tt.want...) })
	}
}

func TestUseUpdate(t *testing.T) {
	create(t, subLeases, subLease("cu.0", useText))
	steps := []struct {
		name, patch string
		want        []string
	}{
		{"fencing write", `{spec: {term: 4, turn: 2}}`, nil},
		{"the claim's pod was made anew", `{spec: {turn: 3, use: {pod: {name: p2, uid: pu2, owner: null}, interface: net2}}}`, nil},
		{"newer protocol", `{spec: {protocol: 2}}`, nil},
		{"older protocol", `{spec: {protocol: 1}}`, []string{"spec.protocol", "must not fall"}},
		{"another node", `{spec: {node: b}}`, []string{"spec.node", "is immutable", "write another sub-lease"}},
		{"another store", `{spec: {store: s2}}`, []string{"spec.store", "is immutable"}},
		{"another claim", `{spec: {use: {claim: {name: other}}}}`, []string{"spec.use.claim", "is immutable"}},
		{"into a request", `{spec: {use: null, ` + requestText + `}}`, []string{"spec", "must not turn from a use into a request"}},
	}
	for _, s := range steps {
		t.Run(s.name, func(t *testing.T) { checkStep(t, change(t, subLeases, "cu.0", s.patch), s.want) })
	}
	t.Run("a use is not answered", func(t *testing.T) {
		checkRefused(t, change(t, subLeases, "cu.0", `{status: {refused: {reason: InUse, message: x}}}`, "status"), "status", "only requests are answered")
	})
}

func TestRequestUpdate(t *testing.T) {
	create(t, subLeases, subLease("x", requestText))
	steps := []struct {
		name, patch string
		want        []string
	}{
		{"fencing write", `{spec: {term: 4, turn: 2}}`, nil},
		{"another interface", `{spec: {request: {interface: net2}}}`, []string{"spec.request", "is immutable"}},
		{"other wants", `{spec: {request: {wants: [{pool: lan, ranges: [10.0.0.1-10.0.0.2]}]}}}`, []string{"spec.request", "is immutable"}},
	}
	for _, s := range steps {
		t.Run(s.name, func(t *testing.T) { checkStep(t, change(t, subLeases, "x", s.patch), s.want) })
	}
}

func TestRequestIsAnsweredOnce(t *testing.T) {
	const granted = `granted: [{address: 10.0.0.5, lease: lan.0a000000.26}, {address: "fd00::5", lease: lan.fd000000000000000000000000000000.122}]`
	const refused = `refused: {reason: InUse, message: "10.0.0.5 is of ns/other, interface net1, on node b"}`
	const once = "is written once"
	answers := []struct{ name, first string }{{"granted", granted}, {"refused", refused}}
	for _, a := range answers {
		t.Run(a.name, func(t *testing.T) {
			create(t, subLeases, subLease("x", requestText))
			steps := []struct {
				name, patch string
				want        []string
			}{
				{"both", `{status: {` + granted + ", " + refused + `}}`, []string{"status", "must not have both"}},
				{"an address that is none", `{status: {granted: [{address: ten, lease: l}]}}`, []string{"status.granted[0].address", "canonical form"}},
				{"first answer", `{status: {` + a.first + `}}`, nil},
				{"the same again", `{status: {` + a.first + `}}`, nil},
				{"other addresses", `{status: {refused: null, granted: [{address: 10.0.0.6, lease: lan.0a000000.26}]}}`, []string{"status", once}},
				{"another refusal", `{status: {granted: null, refused: {reason: Exhausted, message: full}}}`, []string{"status", once}},
				{"none", `{status: {granted: null, refused: null}}`, []string{"status", once}},
				{"no status", `{status: null}`, []string{"status", once}},
			}
			for _, s := range steps {
				t.Run(s.name, func(t *testing.T) { checkStep(t, change(t, subLeases, "x", s.patch, "status"), s.want) })
			}
			t.Run("spec still changes", func(t *testing.T) { checkAccepted(t, change(t, subLeases, "x", `{spec: {turn: 9}}`)) })
		})
	}
}
