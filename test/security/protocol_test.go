package security_test

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-ipam/tenure/api/podnetwork"
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
	for f := range reflect.TypeFor[protocol.Former]().Fields() {
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		kind := map[reflect.Kind]string{reflect.String: "(store|machine|boot|nodeUID)", reflect.Int64: "(term|fence)", reflect.Bool: "(ended|vouched)"}[f.Type.Kind()]
		if !slices.Contains(strings.Split(strings.Trim(kind, "()"), "|"), key) || !strings.Contains(string(text), `"`+kind+`":`) {
			t.Errorf("node-objects.yaml does not know %q, %v, of former agents", key, f.Type)
		}
	}
	if want := fmt.Sprintf("leaseDurationSeconds.orValue(0) <= %d\n", int(protocol.MaxFence.Seconds())); !strings.Contains(string(text), want) {
		t.Errorf("node-objects.yaml does not have %q", want)
	}
	for name, limit := range map[string]int{"tenure.dev/report": protocol.MaxReport, "tenure.dev/strangers": 4096, podnetwork.AnnotationUnserved: 1024} {
		if want := fmt.Sprintf("'%s': %d,", name, limit); !strings.Contains(string(text), want) {
			t.Errorf("node-objects.yaml does not have %q", want)
		}
	}
}
