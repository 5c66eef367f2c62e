package missed

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tenure-ipam/tenure/attach/plan"
	"github.com/tenure-ipam/tenure/ipam/cniresults"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// A sandbox is what the runtime has noted of one: by which network it was made.
type sandbox struct {
	id, netns string
	network   string
	pod       protocol.PodRef // with the UID by which the kubelet knows it; empty if not noted
	addrs     []netip.Addr
	attached  bool // a meta-plugin made it
}

// settled is how old a file must be that does not read to be left alone: younger ones are being
// written.
const settled = time.Minute

// results reads the directories where the CNI library keeps results. A file never changes but by
// its end, so that each is read once.
type results struct {
	cfg   Config
	known map[string][]sandbox // by the file's path
}

func newResults(cfg Config) results { return results{cfg: cfg, known: map[string][]sandbox{}} }

// read returns the sandboxes of which there are results.
func (r *results) read(now time.Time) ([]sandbox, error) {
	attached, there := map[string]bool{}, map[string]bool{}
	for _, dir := range r.cfg.ResultDirs {
		entries, err := os.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			if !e.Type().IsRegular() || cniresults.IsTemp(e.Name()) {
				continue
			}
			there[path] = true
			r.readFile(path, slices.Contains(r.cfg.MetaDirs, dir), e, now)
		}
	}
	for path, all := range r.known {
		if !there[path] {
			delete(r.known, path)
			continue
		}
		for _, s := range all {
			attached[s.id] = attached[s.id] || s.attached
		}
	}
	var sandboxes []sandbox
	for _, all := range r.known {
		for _, s := range all {
			s.attached = attached[s.id]
			sandboxes = append(sandboxes, s)
		}
	}
	return sandboxes, nil
}

// readFile reads a file that is not known yet. meta says that it is a meta-plugin's.
func (r *results) readFile(path string, meta bool, e fs.DirEntry, now time.Time) {
	if _, ok := r.known[path]; ok {
		return
	}
	records, err := cniresults.ReadRecords(path)
	if info, infoErr := e.Info(); err != nil && infoErr == nil && now.Sub(info.ModTime()) < settled {
		return
	}
	all := []sandbox{} // also of a file that says nothing
	for _, rec := range records {
		if rec.IfName != "lo" { // the runtime's own network, which every sandbox has
			all = append(all, sandboxOf(rec, meta))
		}
	}
	r.known[path] = all
}

// sandboxOf returns what a record says of a sandbox.
func sandboxOf(r cniresults.Record, meta bool) sandbox {
	s := sandbox{id: r.ContainerID, netns: r.NetNS, network: r.NetworkName, attached: meta || runsMetaPlugin(r.Config)}
	for _, pair := range r.CNIArgs {
		switch pair[0] {
		case "K8S_POD_NAMESPACE":
			s.pod.Namespace = pair[1]
		case "K8S_POD_NAME":
			s.pod.Name = pair[1]
		case "K8S_POD_UID":
			s.pod.UID = protocol.UID(pair[1])
		}
	}
	var result struct{ IPs []struct{ Address string } }
	_ = json.Unmarshal(r.Result, &result) // then no address is known
	for _, ip := range result.IPs {
		if p, err := netip.ParsePrefix(ip.Address); err == nil {
			s.addrs = append(s.addrs, p.Addr().Unmap())
		}
	}
	return s
}

// runsMetaPlugin reports whether a configuration, or one of a list, is a meta-plugin's.
func runsMetaPlugin(config []byte) bool {
	var c struct {
		Type    string
		Plugins []struct{ Type string }
	}
	if json.Unmarshal(config, &c) != nil {
		return true // nothing is said against what is not understood
	}
	return plan.IsMetaPlugin(c.Type) || slices.ContainsFunc(c.Plugins, func(p struct{ Type string }) bool { return plan.IsMetaPlugin(p.Type) })
}
