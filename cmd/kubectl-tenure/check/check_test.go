package check

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/audit"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/screen"
)

// TestFindingsAreSummedUp: what is on its way back is one line of a kind, after what is wrong.
func TestFindingsAreSummedUp(t *testing.T) {
	leaked := func(addr string) audit.Finding {
		return audit.Finding{Rule: audit.AllocationLeaked, Object: "iplease l", Pool: "p", Address: addr, What: "gone", Remedy: "none yet", Settling: true}
	}
	var out bytes.Buffer
	writeFindings(screen.Of(&out), report(audit.State{}, []audit.Finding{
		leaked("10.0.0.1"), leaked("10.0.0.2"), leaked("10.0.0.3"),
		{Rule: audit.SubLeaseLeaked, Object: "ipsublease s", What: "its pod is gone", Remedy: "none yet", Settling: true},
		{Rule: audit.NoAgent, Object: "nodes", What: "no agent", Remedy: "none"},
	}))
	want := `NOTE  NoAgent: nodes
      what    no agent
      do      none
SOON  AllocationLeaked: iplease l, address 10.0.0.1, pool p, and 2 more
      what    gone
      do      none yet
SOON  SubLeaseLeaked: ipsublease s
      what    its pod is gone
      do      none yet
Looked at pools 0, leases 0, sub-leases 0, claims 0, pods 0, nodes 0: nothing is wrong, notes 1; on their way back 4.
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestResult: what is wrong outweighs notes, and what comes back by itself is neither.
func TestResult(t *testing.T) {
	wrong, note, soon := audit.Finding{Wrong: true}, audit.Finding{}, audit.Finding{Settling: true}
	for _, tt := range []struct {
		found []audit.Finding
		want  Report
	}{
		{nil, Report{Result: InOrder}},
		{[]audit.Finding{soon, soon}, Report{Result: InOrder, Settling: 2}},
		{[]audit.Finding{note, soon}, Report{Result: Notes, Notes: 1, Settling: 1}},
		{[]audit.Finding{wrong, note, wrong}, Report{Result: Wrong, Wrong: 2, Notes: 1}},
	} {
		tt.want.Findings = append([]audit.Finding{}, tt.found...)
		if diff := cmp.Diff(tt.want, report(audit.State{}, tt.found), cmp.AllowUnexported(audit.Finding{})); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}
