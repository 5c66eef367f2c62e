package who

import (
	"bytes"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
	"github.com/tenure-ipam/tenure/ipam/history"
)

// TestPastText: who had it from when to when, what is not certain, and how far back nodes know.
func TestPastText(t *testing.T) {
	was := time.Local
	time.Local = time.FixedZone("here", 3600)
	defer func() { time.Local = was }()
	noon := time.Date(2026, 11, 17, 12, 0, 0, 5e8, time.UTC)
	web := history.Holding{Address: netip.MustParseAddr("10.0.0.5"), Pool: "lan", Namespace: "shop", Pod: "web-0", Interface: "net1", Node: "n1"}
	db := web
	db.Pod, db.Node, db.Claim = "db-0", "n2", "shop/db-0.lan"
	bare := history.Holding{Address: web.Address, Pool: "lan", Interface: "eth1", Node: "n2"}
	v := PastView{
		Address: web.Address, From: noon, To: noon.Add(time.Hour),
		Holders: []history.Span{
			{Holding: bare, To: noon.Add(time.Minute)}, {Holding: web, From: noon, To: noon.Add(time.Hour), Late: true}, {Holding: db, From: noon.Add(2 * time.Hour)},
		},
		Nodes: []NodeView{{Name: "n1", Begins: noon.Add(-time.Hour)}, {Name: "n2", Begins: noon.Add(time.Minute)}, {Name: "n3", Silent: "it has no agent's pod now"}, {Name: "n4"}},
	}
	var out bytes.Buffer
	if err := v.write(t.Context(), &session.Session{Stdout: &out}); err != nil {
		t.Fatal(err)
	}
	want := `FROM                        TO                            POD          INTERFACE   POOL   CLAIM           NODE
?                           2026-11-17T13:01:00+01:00     -            eth1        lan    -               n2
2026-11-17T13:00:00+01:00   ≤ 2026-11-17T14:00:00+01:00   shop/web-0   net1        lan    -               n1
2026-11-17T15:00:00+01:00   still                         shop/db-0    net1        lan    shop/db-0.lan   n2
≤: no agent saw the end; it was by then
not known is what was freed before the files of a node begin: n2 2026-11-17T13:01:00+01:00, n4 (not known since when)
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"n3 (it has no agent's pod now)"}, v.silent()); diff != "" {
		t.Errorf("silent (-want +got):\n%s", diff)
	}
}

// TestNodesSpeakForThemselves: whatever a node answers counts for itself and for the address that
// was asked for, and does nothing to a terminal.
func TestNodesSpeakForThemselves(t *testing.T) {
	p := past{addr: netip.MustParseAddr("10.0.0.5")}
	of := func(address, pod, node string) history.Span {
		return history.Span{Holding: history.Holding{Address: netip.MustParseAddr(address), Pod: pod, Node: node, Claim: "\u202eshop/\rdb"}}
	}
	got := p.heed("n1", []history.Span{of("10.0.0.5", "web\x1b[2J\u009b", "n2"), of("10.0.0.6", "web", "n1"), {}})
	want := []history.Span{{Holding: history.Holding{Address: p.addr, Pod: "web[2J", Node: "n1", Claim: "shop/ db"}}}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestAnswersAreBounded: of an answer without end no more is kept than what is read of one.
func TestAnswersAreBounded(t *testing.T) {
	full := 0
	b := bounded{full: func() { full++ }}
	if n, err := io.Copy(&b, strings.NewReader(strings.Repeat("x", mostRead))); n != mostRead || err != nil || full > 0 {
		t.Errorf("%d bytes, %v, %d times too many", n, err, full)
	}
	if _, err := io.Copy(&b, strings.NewReader("xy")); err != nil || full != 1 || b.text.Len() != mostRead {
		t.Errorf("%v, %d times too many, %d bytes", err, full, b.text.Len())
	}
	if got := errTooLong.Error(); !strings.Contains(got, "4 MiB: ask for a shorter time") {
		t.Error(got)
	}
}

func TestLastLine(t *testing.T) {
	for text, want := range map[string]string{"": "", "one": "one", "Usage: x\n\ntenured: unexpected argument\n": "tenured: unexpected argument"} {
		if got := lastLine(text); got != want {
			t.Errorf("%q: %q; want %q", text, got, want)
		}
	}
}
