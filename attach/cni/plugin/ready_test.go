package plugin

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/tenure-ipam/tenure/ipam/lean/cnicall"
)

// TestTimeouts (N71): while the default network is not ready, an ADD waits, and then has its
// runtime try again; a DEL waits for less, and goes on. Time is a bubble's.
func TestTimeouts(t *testing.T) {
	dir := t.TempDir()
	args := &cnicall.Args{
		ContainerID: "c", Netns: "/run/netns/p", IfName: "eth0", Args: "K8S_POD_NAMESPACE=ns;K8S_POD_NAME=p",
		StdinData: fmt.Appendf(nil, `{"cniVersion":"1.1.0","name":"tenure","type":"tenure-attach","defaultNetwork":"x","stateDir":%q,"socket":%q,"readinessindicatorfile":%q}`,
			dir, filepath.Join(dir, "agent.sock"), filepath.Join(dir, "ready")),
	}
	synctest.Test(t, func(t *testing.T) {
		c := &call{Plugin: Plugin{Stderr: io.Discard, Now: time.Now}}
		begin := time.Now()
		err := c.add(t.Context(), args)
		if e, ok := errors.AsType[*types.Error](err); !ok || e.Code != types.ErrTryAgainLater || time.Since(begin) != readyTimeout {
			t.Errorf("ADD: %v after %v; want code 11 after %v", err, time.Since(begin), readyTimeout)
		}
		begin = time.Now()
		if err := c.del(t.Context(), args); err != nil || time.Since(begin) != unreadyTimeout {
			t.Errorf("DEL: %v after %v; want success after %v", err, time.Since(begin), unreadyTimeout)
		}
	})
}
