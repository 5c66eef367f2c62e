package plugin_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/ipam/node/store"
)

func prevResult(addrs ...string) keys {
	var list []any
	for _, a := range addrs {
		list = append(list, keys{"address": a})
	}
	return keys{"prevResult": keys{"cniVersion": "1.1.0", "ips": list}}
}

// TestCheck (C12).
func TestCheck(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		n := b.network(t, "10.0.0.0/24", "fd00::/64").with(keys{"runtimeConfig": ips("10.0.0.5", "fd00::5")})
		n.start("c1")
		o := n.call("ADD", "c1").run(t)
		var result any
		if err := json.Unmarshal([]byte(o.stdout), &result); err != nil {
			t.Fatalf("%v: %s %s", err, o.stdout, o.stderr)
		}
		check := func(n *network) outcome { return n.call("CHECK", "c1").run(t) }
		check(n.with(keys{"prevResult": result})).wantQuiet(t)
		// Another plugin's beside ours.
		check(n.with(prevResult("192.0.2.1/24", "fd00::5/64", "10.0.0.5/24"))).wantQuiet(t)
		check(n).wantError(t, 7, "prevResult")
		check(n.with(prevResult("10.0.0.5/24"))).wantError(t, 100, "fd00::5/64")
		check(n.with(prevResult("10.0.0.6/24", "fd00::5/64"))).wantError(t, 100, "10.0.0.5/24")
		check(n.in("0.4.0").with(keys{"prevResult": keys{"cniVersion": "0.4.0", "ips": []any{
			keys{"version": "4", "address": "10.0.0.5/24"}, keys{"version": "6", "address": "fd00::5/64"},
		}}})).wantQuiet(t)
		for _, v := range []string{"0.1.0", "0.2.0", "0.3.0", "0.3.1"} {
			check(n.in(v).with(keys{"prevResult": result})).wantError(t, 1, "CHECK")
		}
		n.del("c1")
		check(n.with(keys{"prevResult": result})).wantError(t, 100, "no address recorded")
	})
}

// withoutContainer removes what STATUS and GC do not get.
func (c call) withoutContainer() call {
	return c.set("CNI_CONTAINERID", "").set("CNI_NETNS", "").set("CNI_IFNAME", "")
}

// TestStatus (C13).
func TestStatus(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		n := b.network(t, "10.0.0.0/30").with(keys{"runtimeConfig": ips("10.0.0.2")}) // one address
		status := func(n *network) outcome { return n.call("STATUS", "").withoutContainer().run(t) }
		status(n).wantQuiet(t)
		n.add("c1")
		status(n).wantQuiet(t) // full: a secondary pool must not make a node NotReady
		for _, v := range versions[:6] {
			status(n.in(v)).wantError(t, 1, "STATUS")
		}
		n.del("c1")
	})
}

// TestStatusWhenFull (C13).
func TestStatusWhenFull(t *testing.T) {
	n := localNetwork(t, "10.0.0.0/30").with(keys{"ipam.statusWhenFull": true})
	status := func() outcome { return n.call("STATUS", "").withoutContainer().run(t) }
	status().wantQuiet(t)
	n.add("c1")
	status().wantError(t, 50, "no free IPv4 address")
	n.del("c1")
	status().wantQuiet(t)
}

// TestStatusOfAnAgent (C13).
func TestStatusOfAnAgent(t *testing.T) {
	n := agentNetwork(t, "10.0.0.0/24")
	status := func() outcome { return n.call("STATUS", "").withoutContainer().run(t) }
	status().wantQuiet(t)
	n.down()
	status().wantError(t, 50, "no agent listens")
	n.up()
	eventually(t, 10*time.Second, func() error {
		_, err := status().addressesOrQuiet()
		return err
	})
}

// addressesOrQuiet is addresses for a verb that prints nothing.
func (o outcome) addressesOrQuiet() (string, error) {
	if o.exit == 0 && o.stdout == "" {
		return "", nil
	}
	return o.addresses()
}

// TestStatusWithoutAStore (C13).
func TestStatusWithoutAStore(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n := newNetwork(t, keys{"mode": "local", "subnet": "10.0.0.0/24", "dataDir": file})
	n.call("STATUS", "").withoutContainer().run(t).wantError(t, 50, file)
}

// TestStatusAndGC (C18): the two verbs exist, which those of host-local, static and
// dhcp do not, and only where the version has them.
func TestStatusAndGC(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		n := b.network(t, "10.0.0.0/24").with(keys{"cni.dev/valid-attachments": []any{}})
		for _, verb := range []string{"STATUS", "GC"} {
			n.call(verb, "").withoutContainer().run(t).wantQuiet(t)
			n.in("1.0.0").call(verb, "").withoutContainer().run(t).wantError(t, 1, verb)
		}
	})
}

// TestLocalDiskFull: an ADD says so, a DEL works, and so does the next ADD.
func TestLocalDiskFull(t *testing.T) {
	n := localNetwork(t, "10.0.0.0/16")
	dir := filepath.Join(t.TempDir(), "disk")
	mountDisk(t, dir, "4m")
	n.ipam["dataDir"] = dir
	n.add("c0")
	ballast := filepath.Join(dir, "ballast")
	fill(t, ballast)
	fillStore(t, filepath.Join(dir, "net.db"))
	var held []string
	for full := false; !full; {
		c := fmt.Sprintf("held-%d", len(held))
		o := n.call("ADD", c).run(t)
		if full = o.exit != 0; full {
			o.wantError(t, 11, "no space")
		} else {
			held = append(held, c)
		}
	}
	n.call("STATUS", "").withoutContainer().run(t).wantError(t, 50, "no space")
	n.del("c0")
	for _, c := range held {
		n.del(c)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	n.call("STATUS", "").withoutContainer().run(t).wantQuiet(t)
	n.add("c1")
}

// fillStore adds attachments to the store until its disk has no room for more.
func fillStore(t *testing.T, path string) {
	t.Helper()
	st, err := store.Open(path, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	for batch := 0; err == nil; batch++ {
		err = st.Update(t.Context(), func(tx *store.Tx) error {
			for i := range 100 {
				k := store.Key{Network: "filler", ContainerID: fmt.Sprintf("c%d-%d", batch, i), IfName: "eth0"}
				if err := tx.PutAttachment(store.Attachment{Key: k, Netns: strings.Repeat("x", 500)}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if !errors.Is(err, store.ErrFull) {
		t.Fatal(err)
	}
}
