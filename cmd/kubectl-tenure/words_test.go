package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/audit"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/screen"
)

// TestOneOfThem: of one thing a sentence does not speak as of several.
func TestOneOfThem(t *testing.T) {
	for _, tt := range []struct {
		pods, addresses int
		want            string
	}{
		{0, 0, "no running pod has an address of it"},
		{1, 1, "1 running pod has 1 address of it, and keeps what it has"},
		{1, 2, "1 running pod has 2 addresses of it, and keeps what it has"},
		{8, 16, "8 running pods have 16 addresses of it, and keep them"},
	} {
		if got := (moveSegment{Pods: tt.pods, Addresses: tt.addresses}).podsKeep(); got != tt.want {
			t.Errorf("%d pods and %d addresses: %q; want %q", tt.pods, tt.addresses, got, tt.want)
		}
	}
}

// TestFindingsAreSummedUp: what is on its way back is one line of a kind, after what is wrong.
func TestFindingsAreSummedUp(t *testing.T) {
	leaked := func(addr string) audit.Finding {
		return audit.Finding{Rule: audit.AllocationLeaked, Object: "iplease l", Pool: "p", Address: addr, What: "gone", Remedy: "none yet", Settling: true}
	}
	var out bytes.Buffer
	writeFindings(screen.Of(&out), audit.State{}, []audit.Finding{
		leaked("10.0.0.1"), leaked("10.0.0.2"), leaked("10.0.0.3"),
		{Rule: audit.SubLeaseLeaked, Object: "ipsublease s", What: "its pod is gone", Remedy: "none yet", Settling: true},
		{Rule: audit.NoAgent, Object: "nodes", What: "no agent", Remedy: "none"},
	}, 0)
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

// TestKindsThatAreMissing: who asks a cluster without Tenure is told so.
func TestKindsThatAreMissing(t *testing.T) {
	resource := schema.GroupResource{Group: "tenure.dev", Resource: "ippools"}
	unknown := apierrors.NewGenericServerResponse(http.StatusNotFound, "get", resource, "", "404 page not found", 0, true)
	if got := hint(fmt.Errorf("list every IPPool: %w", unknown)); !strings.Contains(got, "is Tenure installed in this cluster") {
		t.Errorf("of a kind that is not there it says %q", got)
	}
	if got := hint(fmt.Errorf("read pool lan: %w", apierrors.NewNotFound(resource, "lan"))); got != "" {
		t.Errorf("of a pool that is not there it says %q", got)
	}
}

// TestSaysWhichRole: who may not read something is told which roles let one.
func TestSaysWhichRole(t *testing.T) {
	not := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New(`User "x" cannot list resource "pods"`))
	if got := hint(fmt.Errorf("list every Pod: %w", not)); !strings.Contains(got, "tenure-operator") {
		t.Errorf("it says of roles %q", got)
	}
	if got := hint(errors.New("down")); got != "" {
		t.Errorf("of another error it says %q", got)
	}
}
