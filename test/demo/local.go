package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/test/cninet"
	"github.com/tenure-ipam/tenure/test/demo/show"
)

// The network of the scenes without a cluster.
const (
	localDir    = show.Dir + "/local"
	localConfig = `{
  "cniVersion": "1.1.0", "name": "lab",
  "plugins": [{
    "type": "bridge", "bridge": "lab0", "isGateway": true, "capabilities": {"ips": true},
    "ipam": {"type": "tenure", "mode": "local", "dataDir": "` + localDir + `",
             "ranges": [[{"subnet": "10.88.0.0/24"}], [{"subnet": "fd00:88::/64"}]]}
  }]
}`
	localInterface = "eth0"
)

// local are the scenes without a cluster.
type local struct {
	*show.Show
	bin     string
	runtime *cninet.Runtime
	running []*container
}

// A container is a network namespace, and what its ADD answered.
type container struct {
	name  string
	ns    cninet.NS
	addrs []netip.Prefix
	added time.Duration // how long ADD took
}

var localScenes = []show.Scene[*local]{
	{
		Title: "Two containers on one machine, without a cluster",
		Why: "A container runtime runs a network's plugin, bridge, and this runs its IPAM plugin, tenure. Local mode needs no more than the program: " +
			"what it gives out is in a file of the network's.",
		Play: (*local).playTwo,
	},
	{
		Title: "Sixteen containers at once",
		Why: "Sixteen processes of the plugin want addresses of one network at the same moment. They wait for each other at the file's lock; " +
			"each answers after its own change is on disk.",
		Play: (*local).playSixteen,
	},
	{
		Title: "kill -9 in the middle of an ADD, again and again",
		Why: "The plugin is killed at a random moment, as by a crash or the OOM killer. Its change is one transaction: afterwards the file has all of it, " +
			"or nothing.",
		Play: (*local).playKill,
	},
	{
		Title: "Who has what?",
		Why: "An address that somebody has is not given to another who asks for it by name: the answer says who has it. A container vanishes, " +
			"and its DEL never comes: the runtime's garbage collection (CNI's GC) says which containers there are, and what others had comes free.",
		Play: (*local).playWho,
	},
}

// perform plays the scenes, and takes everything down.
func (l *local) perform(ctx context.Context) {
	l.Title("Tenure: pods come and go; the workload has tenure on its address")
	l.Say("Real are Tenure's program, network namespaces, the bridge plugin and libcni; the demo plays the container runtime. All of it is in a " +
		"sandbox that ends with this program. What the later scenes need, on a cluster, is built meanwhile.")
	for _, program := range []string{"tenure", "rig/bridge"} {
		if _, err := os.Stat(filepath.Join(l.bin, program)); err != nil {
			l.Fail("bin/%s is missing: run make demo, which builds it", program)
		}
	}
	host, err := cninet.Make("machine")
	l.Must(err)
	l.runtime = cninet.NewRuntime([]string{filepath.Join(l.bin, "rig"), l.bin}, filepath.Join(localDir, "results"))
	l.runtime.Host = host
	for _, sc := range localScenes {
		l.Pause(ctx)
		l.Must(context.Cause(ctx))
		show.Play(ctx, l.Show, l, sc)
	}
	for _, c := range slices.Clone(l.running) {
		l.remove(ctx, c)
	}
	l.Must(errors.Join(host.Delete(), os.RemoveAll(show.Dir)))
}

// make makes a container that is not attached.
func (l *local) make(name string) *container {
	ns, err := cninet.Make(name)
	l.Must(err)
	return &container{name: name, ns: ns}
}

func (c *container) attachment(ips ...string) cninet.Attachment {
	a := cninet.Attachment{ContainerID: c.name, NS: c.ns, IfName: localInterface}
	if len(ips) > 0 {
		a.Capability = map[string]any{"ips": ips}
	}
	return a
}

// add attaches c to the network, and checks that it has what ADD answered.
func (l *local) add(ctx context.Context, c *container, ips ...string) error {
	began := time.Now()
	result, err := l.runtime.Add(ctx, localConfig, c.attachment(ips...))
	c.added = time.Since(began)
	if err != nil {
		return err
	}
	c.addrs, err = c.ns.Addrs(localInterface)
	if answered := cninet.Addresses(result); err == nil && !slices.Equal(c.addrs, answered) {
		return fmt.Errorf("%s has %v; ADD answered %v", c.name, c.addrs, answered)
	}
	return err
}

// remove is the DEL of a container that runs.
func (l *local) remove(ctx context.Context, c *container) {
	l.Must(errors.Join(l.runtime.Del(ctx, localConfig, c.attachment()), c.ns.Delete()))
	l.running = slices.DeleteFunc(l.running, func(o *container) bool { return o == c })
}

// records returns what the network's file has, by container: a sound file.
func (l *local) records(ctx context.Context) map[string][]netip.Prefix {
	all := map[string][]netip.Prefix{}
	st, err := store.OpenLocal(ctx, filepath.Join(localDir, "lab.db"), store.Options{ReadOnly: true})
	l.Must(err)
	err = errors.Join(st.Check(), st.View(func(tx *store.Tx) error {
		for a, err := range tx.Attachments() {
			if err != nil {
				return err
			}
			for _, addr := range a.Addresses {
				all[a.ContainerID] = append(all[a.ContainerID], netip.PrefixFrom(addr.Addr, addr.Bits))
			}
		}
		return nil
	}), st.Close())
	l.Must(err)
	return all
}

// distinct checks that the file has what each of the containers has and nothing else, and no
// address twice.
func (l *local) distinct(ctx context.Context) {
	records := l.records(ctx)
	seen := map[netip.Addr]string{}
	for _, c := range l.running {
		if !slices.Equal(records[c.name], c.addrs) {
			l.Fail("%s has %v; the file says %v", c.name, c.addrs, records[c.name])
		}
		for _, a := range c.addrs {
			if other, twice := seen[a.Addr()]; twice {
				l.Fail("%v is given to %s and to %s", a, other, c.name)
			}
			seen[a.Addr()] = c.name
		}
	}
	if len(records) != len(l.running) {
		l.Fail("the file has addresses of %d containers; %d run", len(records), len(l.running))
	}
}

// showContainers prints who has which address, and how long it took to get it.
func (l *local) showContainers(containers ...*container) {
	rows := [][]string{{"CONTAINER", "ADDRESSES", "ADD"}}
	for _, c := range containers {
		rows = append(rows, []string{c.name, c.texts(), show.Millis(c.added)})
	}
	l.Table(rows...)
}

func (c *container) texts() string {
	all := make([]string, len(c.addrs))
	for i, a := range c.addrs {
		all[i] = a.String()
	}
	return strings.Join(all, "  ")
}

// refuse has an ADD fail, with every word of because, and shows why.
func (l *local) refuse(ctx context.Context, c *container, ip string, because ...string) {
	err := l.add(ctx, c, ip)
	if err == nil {
		l.Fail("%s got %v; it should have been refused", c.name, c.addrs)
	}
	var why *types.Error
	if !errors.As(err, &why) {
		l.Must(err)
	}
	for _, word := range because {
		if !strings.Contains(why.Error(), word) {
			l.Fail("%s is refused, but the reason does not mention %q: %w", c.name, word, why)
		}
	}
	l.Refused(c.name, fmt.Sprintf("%s (CNI code %d)", why, why.Code))
	l.Must(errors.Join(l.runtime.Del(ctx, localConfig, c.attachment()), c.ns.Delete()))
}
