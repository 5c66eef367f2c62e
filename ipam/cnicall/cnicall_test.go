package cnicall

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
)

func TestC16ErrorHasCNIVersion(t *testing.T) {
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

func TestVersionOf(t *testing.T) {
	for stdin, want := range map[string]string{`{"cniVersion":"0.4.0"}`: "0.4.0", `{}`: "0.1.0", `{`: ""} {
		if got := VersionOf([]byte(stdin)); got != want {
			t.Errorf("VersionOf(%s) = %q; want %q", stdin, got, want)
		}
	}
}

func TestC17OwnNetworkNamespaceIsRefused(t *testing.T) {
	const own = "/proc/self/ns/net"
	for _, tt := range []struct {
		args    skel.CmdArgs
		refused bool
	}{
		{skel.CmdArgs{Netns: own}, true},
		{skel.CmdArgs{Netns: own, NetnsOverride: "1"}, false},
		{skel.CmdArgs{Netns: own, NetnsOverride: "True"}, false},
		{skel.CmdArgs{Netns: own, NetnsOverride: "no"}, true},
		{skel.CmdArgs{Netns: "/none"}, false},
	} {
		if err := CheckNetns(&tt.args); (err != nil) != tt.refused {
			t.Errorf("%+v: %v; want it refused: %v", tt.args, err, tt.refused)
		}
	}
}
