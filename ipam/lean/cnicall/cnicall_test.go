package cnicall

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
)

// TestErrorHasCNIVersion (C16).
func TestErrorHasCNIVersion(t *testing.T) {
	for version, want := range map[string]string{"": "1.1.0", "0.3.1": "0.3.1"} {
		var out bytes.Buffer
		if err := PrintError(&out, version, types.NewError(7, "m", "d")); err != nil {
			t.Fatal(err)
		}
		got := fmt.Sprintf("{\n    \"cniVersion\": %q,\n    \"code\": 7,\n    \"msg\": \"m\",\n    \"details\": \"d\"\n}\n", want)
		if out.String() != got {
			t.Errorf("got %s; want %s", out.String(), got)
		}
	}
}

// TestOwnNetworkNamespaceIsRefused (C17).
func TestOwnNetworkNamespaceIsRefused(t *testing.T) {
	const own = "/proc/self/ns/net"
	for _, tt := range []struct {
		args    Args
		refused bool
	}{
		{Args{Netns: own}, true},
		{Args{Netns: own, NetnsOverride: "1"}, false},
		{Args{Netns: own, NetnsOverride: "True"}, false},
		{Args{Netns: own, NetnsOverride: "no"}, true},
		{Args{Netns: "/proc/self/ns/mnt"}, false},
		{Args{}, false},
		{Args{Netns: "/none"}, false},
	} {
		if err := checkNetns(&tt.args); (err != nil) != tt.refused {
			t.Errorf("%+v: %v; want it refused: %v", tt.args, err, tt.refused)
		}
	}
}
