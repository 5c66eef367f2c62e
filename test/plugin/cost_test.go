package plugin_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/test/programs"
)

// TestBinarySize: the plugin is read from disk for every pod of a node that has
// just booted.
func TestBinarySize(t *testing.T) {
	info, err := os.Stat(plugin)
	if err != nil {
		t.Fatal(err)
	}
	const most = 5 << 20
	if info.Size() > most {
		t.Errorf("the plugin has %d bytes; want at most %d", info.Size(), most)
	}
}

// runs measures whole processes, as a runtime runs them: one after the other.
func runs(b *testing.B, program string, env []string, config func(i int) []byte) {
	for i := 0; b.Loop(); i++ {
		cmd := exec.Command(program)
		cmd.Env = append(env, "CNI_NETNS=/run/netns/none", "CNI_IFNAME=eth0", "CNI_PATH="+pluginDir(), fmt.Sprintf("CNI_CONTAINERID=c%d", i%1000))
		cmd.Stdin = bytes.NewReader(config(i))
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
	}
}

// BenchmarkProcess compares the plugin with the smallest reference plugin,
// `static`, which reads its addresses from its configuration, and with
// host-local.
func BenchmarkProcess(b *testing.B) {
	rig, err := programs.RigDir()
	if err != nil {
		b.Fatal(err)
	}
	config := func(ipam string) func(int) []byte {
		return func(int) []byte { return []byte(`{"cniVersion":"1.1.0","name":"net","ipam":` + ipam + `}`) }
	}
	const subnet = `"subnet":"10.0.0.0/16"`
	add := []string{"CNI_COMMAND=ADD"}
	b.Run("static/ADD", func(b *testing.B) {
		runs(b, filepath.Join(rig, "static"), add, config(`{"type":"static","addresses":[{"address":"10.0.0.5/24"}]}`))
	})
	b.Run("host-local/ADD+DEL", func(b *testing.B) {
		conf := config(fmt.Sprintf(`{"type":"host-local","dataDir":%q,%s}`, b.TempDir(), subnet))
		runsInPairs(b, filepath.Join(rig, "host-local"), conf)
	})
	b.Run("local/ADD+DEL", func(b *testing.B) {
		conf := config(fmt.Sprintf(`{"type":"tenure","mode":"local","dataDir":%q,%s}`, b.TempDir(), subnet))
		runsInPairs(b, plugin, conf)
	})
	b.Run("agent that does nothing/ADD", func(b *testing.B) {
		socket := doNothingAgent(b)
		runs(b, plugin, add, config(fmt.Sprintf(`{"type":"tenure","pool":"p","socket":%q}`, socket)))
	})
	b.Run("VERSION", func(b *testing.B) {
		runs(b, plugin, []string{"CNI_COMMAND=VERSION"}, func(int) []byte { return nil })
	})
}

// runsInPairs measures an ADD and its DEL.
func runsInPairs(b *testing.B, program string, config func(int) []byte) {
	for i := 0; b.Loop(); i++ {
		for _, verb := range []string{"ADD", "DEL"} {
			cmd := exec.Command(program)
			cmd.Env = []string{
				"CNI_COMMAND=" + verb, "CNI_NETNS=/run/netns/none", "CNI_IFNAME=eth0", "CNI_PATH=" + pluginDir(),
				fmt.Sprintf("CNI_CONTAINERID=c%d", i),
			}
			cmd.Stdin = bytes.NewReader(config(i))
			if out, err := cmd.CombinedOutput(); err != nil {
				b.Fatalf("%s: %v: %s", verb, err, out)
			}
		}
	}
}

type doNothing struct{}

func (doNothing) Serve(context.Context, agentapi.Request) agentapi.Response {
	return agentapi.Response{Result: &agentapi.Result{IPs: []agentapi.IP{{Address: netip.MustParsePrefix("10.0.0.5/24")}}}}
}

// doNothingAgent serves one answer for everything, until the benchmark ends.
func doNothingAgent(b *testing.B) (socket string) {
	socket = filepath.Join(b.TempDir(), "s")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- agentapi.Serve(ctx, ln, doNothing{}, agentapi.DefaultLimits(), slog.New(slog.DiscardHandler))
	}()
	b.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			b.Error(err)
		}
	})
	return socket
}
