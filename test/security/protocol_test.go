package security_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// TestPolicyKnowsTheProtocol holds the policies' numbers to the program's.
func TestPolicyKnowsTheProtocol(t *testing.T) {
	text, err := os.ReadFile("../../deploy/policies/node-objects.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("object.spec.protocol <= %d\n", protocol.Version)
	if n := strings.Count(string(text), want); n != 2 {
		t.Errorf("node-objects.yaml has %q %d times; want it for leases and for sub-leases", want, n)
	}
	if want := fmt.Sprintf("leaseDurationSeconds.orValue(0) <= %d\n", int(protocol.MaxFence.Seconds())); !strings.Contains(string(text), want) {
		t.Errorf("node-objects.yaml does not have %q", want)
	}
}
