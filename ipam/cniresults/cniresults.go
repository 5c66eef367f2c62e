package cniresults

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// DefaultDirs are where runtimes, tenure-attach and Multus keep results.
func DefaultDirs() []string {
	return []string{"/var/lib/cni/results", "/var/lib/cni/tenure-attach/results", "/var/lib/cni/multus/results"}
}

// An Entry is one attachment as the CNI library kept it.
type Entry struct {
	// Network, ContainerID and IfName are the attachment's key.
	Network, ContainerID, IfName string
	// Netns is the path of the network namespace; empty where an older library
	// did not keep it.
	Netns string
	// Args is CNI_ARGS: "KEY=value;KEY=value".
	Args string
	// IPAM are the configurations that the plugins of the network were given, of
	// those that have an ipam section: with the network's name and version in
	// place, without runtimeConfig.
	IPAM []json.RawMessage
	// IPs are the addresses of the result, in its order.
	IPs []IP
	// Written is when the file was written.
	Written time.Time
}

// An IP is one address of a result. A zero Gateway is none.
type IP struct {
	Address netip.Prefix // not masked
	Gateway netip.Addr
}

// result has the addresses of every version of a result: ips since 0.3.0, ip4 and
// ip6 before.
type result struct {
	IPs []struct {
		Address string `json:"address"`
		Gateway string `json:"gateway"`
	} `json:"ips"`
	IP4 *oldIP `json:"ip4"`
	IP6 *oldIP `json:"ip6"`
}

type oldIP struct {
	IP      string `json:"ip"`
	Gateway string `json:"gateway"`
}

// entries returns what records say, and adds to err what is not as the library writes it;
// what reads is returned all the same.
func entries(records []Record, err error) (all []Entry, _ error) {
	for _, r := range records {
		e, bad := entryOf(r)
		if bad != nil {
			err = errors.Join(err, bad)
			continue
		}
		all = append(all, e)
	}
	return all, err
}

func entryOf(r Record) (Entry, error) {
	e := Entry{Network: r.NetworkName, ContainerID: r.ContainerID, IfName: r.IfName, Netns: r.NetNS, Args: argsText(r.CNIArgs)}
	var res result
	if err := json.Unmarshal(r.Result, &res); err != nil {
		return Entry{}, fmt.Errorf("result: %w", err)
	}
	var err error
	if e.IPs, err = res.addresses(); err != nil {
		return Entry{}, err
	}
	e.IPAM, err = plugins(r.Config, r.NetworkName)
	if err != nil {
		return Entry{}, err
	}
	return e, nil
}

// argsText returns CNI_ARGS as the library writes it. A pair that cannot have been in it is left
// out: it would read as two.
func argsText(pairs [][2]string) string {
	var text []string
	for _, p := range pairs {
		if p[0] != "" && !strings.ContainsAny(p[0], ";=") && !strings.Contains(p[1], ";") {
			text = append(text, p[0]+"="+p[1])
		}
	}
	return strings.Join(text, ";")
}

func (r result) addresses() ([]IP, error) {
	var ips []IP
	add := func(address, gateway string) error {
		p, err := netip.ParsePrefix(address)
		if err != nil {
			return err
		}
		ip := IP{Address: netip.PrefixFrom(p.Addr().Unmap(), p.Bits())}
		if !ip.Address.IsValid() {
			return fmt.Errorf("address %s: the prefix length is not of IPv4", address)
		}
		if gateway != "" {
			gw, err := netip.ParseAddr(gateway)
			if err != nil {
				return err
			}
			if gw = gw.Unmap(); gw.Zone() == "" {
				ip.Gateway = gw
			}
		}
		ips = append(ips, ip)
		return nil
	}
	for _, ip := range r.IPs {
		if err := add(ip.Address, ip.Gateway); err != nil {
			return nil, err
		}
	}
	for _, old := range []*oldIP{r.IP4, r.IP6} {
		if old != nil {
			if err := add(old.IP, old.Gateway); err != nil {
				return nil, err
			}
		}
	}
	return ips, nil
}

// plugins returns the configurations with an ipam section, of a network
// configuration or of a list of plugins.
func plugins(config []byte, network string) ([]json.RawMessage, error) {
	if len(bytes.TrimSpace(config)) == 0 {
		return nil, nil
	}
	var top map[string]json.RawMessage
	if err := json.Unmarshal(config, &top); err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	all := []map[string]json.RawMessage{top}
	if list, ok := top["plugins"]; ok {
		if err := json.Unmarshal(list, &all); err != nil {
			return nil, fmt.Errorf("config: plugins: %w", err)
		}
	}
	name, err := json.Marshal(network)
	if err != nil {
		return nil, fmt.Errorf("config: name: %w", err)
	}
	var found []json.RawMessage
	for _, p := range all {
		if p["ipam"] == nil {
			continue
		}
		p["name"] = name
		if version, ok := top["cniVersion"]; ok {
			p["cniVersion"] = version
		}
		text, err := json.Marshal(p)
		if err != nil {
			return nil, fmt.Errorf("config: %w", err)
		}
		found = append(found, text)
	}
	return found, nil
}

// A FileError says of a file, by its path, why it does not read, or not to its end.
type FileError struct {
	Path string
	Err  error
}

func (e *FileError) Error() string { return e.Path + ": " + e.Err.Error() }

func (e *FileError) Unwrap() error { return e.Err }

// MayBeOf reports whether the file may be of the network. The CNI library names its files
// "network-container-interface"; those with other names may be of any network.
func (e *FileError) MayBeOf(network string) bool {
	name := filepath.Base(e.Path)
	return strings.Count(name, "-") < 2 || strings.HasPrefix(name, network+"-")
}

// Read returns the entries of the directories that exist, and for each file that
// does not read, or not to its end, what is wrong with it. err is a directory that
// cannot be read.
func Read(dirs []string) (all []Entry, unread []*FileError, err error) {
	for _, dir := range dirs {
		files, derr := os.ReadDir(dir)
		if errors.Is(derr, fs.ErrNotExist) {
			continue
		}
		if derr != nil {
			return nil, nil, derr
		}
		for _, f := range files {
			if !f.Type().IsRegular() || IsTemp(f.Name()) {
				continue
			}
			some, ferr := readFile(filepath.Join(dir, f.Name()))
			if ferr != nil && !errors.Is(ferr, fs.ErrNotExist) { // else its DEL came meanwhile
				unread = append(unread, &FileError{filepath.Join(dir, f.Name()), ferr})
			}
			all = append(all, some...)
		}
	}
	return all, unread, nil
}

func readFile(path string) ([]Entry, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	all, err := entries(ReadRecords(path))
	for i := range all {
		all[i].Written = info.ModTime()
	}
	return all, err
}
