package who

import (
	"bytes"
	"net/netip"
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
		Nodes: []NodeView{{Name: "n1", Begins: noon.Add(-time.Hour)}, {Name: "n2", Begins: noon.Add(time.Minute)}, {Name: "n3", Silent: "it has no agent's pod now"}},
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
not known is what was freed before the files of a node begin: n2 2026-11-17T13:01:00+01:00
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"n3 (it has no agent's pod now)"}, v.silent()); diff != "" {
		t.Errorf("silent (-want +got):\n%s", diff)
	}
}

func TestLastLine(t *testing.T) {
	for text, want := range map[string]string{"": "", "one": "one", "Usage: x\n\ntenured: unexpected argument\n": "tenured: unexpected argument"} {
		if got := lastLine(text); got != want {
			t.Errorf("%q: %q; want %q", text, got, want)
		}
	}
}
