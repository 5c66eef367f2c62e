package cniresult

import (
	"encoding/json"
	"net"
	"slices"
	"strconv"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"

	"github.com/tenure-ipam/tenure/ipam/lean/plainjson"
)

// Parse reads raw, a JSON object, as a result of CNI's version v. Of a member that
// is there twice, of one with another case, and of every other oddity it makes what
// the library makes.
func Parse(v string, raw json.RawMessage) (types.Result, error) {
	if v == "1.0.0" || v == "1.1.0" {
		if r, ok := plain(raw); ok && r.CNIVersion == v {
			return r, nil
		}
	}
	return create.Create(v, raw)
}

// plain reads a result that is plain: its members are the specification's, each
// there once and of its type. It does not say what is wrong with another one.
func plain(raw json.RawMessage) (*types100.Result, bool) {
	r := &types100.Result{}
	ok := members(raw, func(key string, v json.RawMessage) bool {
		switch key {
		case "cniVersion":
			return plainjson.TextTo(v, &r.CNIVersion)
		case "interfaces":
			return list(v, &r.Interfaces, readInterface)
		case "ips":
			return list(v, &r.IPs, readIP)
		case "routes":
			return list(v, &r.Routes, readRoute)
		case "dns":
			return readDNS(v, &r.DNS)
		}
		return false
	})
	return r, ok
}

func readInterface(raw json.RawMessage, i *types100.Interface) bool {
	return members(raw, func(key string, v json.RawMessage) bool {
		switch key {
		case "name":
			return plainjson.TextTo(v, &i.Name)
		case "mac":
			return plainjson.TextTo(v, &i.Mac)
		case "mtu":
			return number(v, &i.Mtu)
		case "sandbox":
			return plainjson.TextTo(v, &i.Sandbox)
		case "socketPath":
			return plainjson.TextTo(v, &i.SocketPath)
		case "pciID":
			return plainjson.TextTo(v, &i.PciID)
		}
		return false
	})
}

func readIP(raw json.RawMessage, ip *types100.IPConfig) bool {
	return members(raw, func(key string, v json.RawMessage) bool {
		switch key {
		case "interface":
			ip.Interface = new(int)
			return number(v, ip.Interface)
		case "address":
			return network(v, &ip.Address)
		case "gateway":
			return address(v, &ip.Gateway)
		}
		return false
	})
}

func readRoute(raw json.RawMessage, r *types.Route) bool {
	return members(raw, func(key string, v json.RawMessage) bool {
		switch key {
		case "dst":
			return network(v, &r.Dst)
		case "gw":
			return address(v, &r.GW)
		case "mtu":
			return number(v, &r.MTU)
		case "advmss":
			return number(v, &r.AdvMSS)
		case "priority":
			return number(v, &r.Priority)
		case "table":
			r.Table = new(int)
			return number(v, r.Table)
		case "scope":
			r.Scope = new(int)
			return number(v, r.Scope)
		}
		return false
	})
}

func readDNS(raw json.RawMessage, d *types.DNS) bool {
	return members(raw, func(key string, v json.RawMessage) bool {
		switch key {
		case "nameservers":
			return texts(v, &d.Nameservers)
		case "domain":
			return plainjson.TextTo(v, &d.Domain)
		case "search":
			return texts(v, &d.Search)
		case "options":
			return texts(v, &d.Options)
		}
		return false
	})
}

// members calls read with each member of an object, as long as it returns true. It
// returns false, too, for anything else than an object, and where a key is there
// twice.
func members(raw json.RawMessage, read func(key string, v json.RawMessage) bool) bool {
	if raw[0] != '{' {
		return false
	}
	var seen [8]string // more than any object of a result has keys
	n := 0
	for key, v := range plainjson.Members(raw) {
		if n == len(seen) || slices.Contains(seen[:n], string(key)) || !read(string(key), v) {
			return false
		}
		seen[n] = string(key)
		n++
	}
	return true
}

// list reads a list of objects.
func list[T any](raw json.RawMessage, to *[]*T, read func(json.RawMessage, *T) bool) bool {
	if raw[0] != '[' {
		return false
	}
	*to = []*T{}
	for item := range plainjson.Items(raw) {
		one := new(T)
		if !read(item, one) {
			return false
		}
		*to = append(*to, one)
	}
	return true
}

func texts(raw json.RawMessage, to *[]string) bool {
	if raw[0] != '[' {
		return false
	}
	*to = []string{}
	for item := range plainjson.Items(raw) {
		var s string
		if !plainjson.TextTo(item, &s) {
			return false
		}
		*to = append(*to, s)
	}
	return true
}

func number(raw json.RawMessage, to *int) bool {
	n, err := strconv.Atoi(string(raw))
	*to = n
	return err == nil
}

// network reads an address with its prefix length.
func network(raw json.RawMessage, to *net.IPNet) bool {
	var s string
	if !plainjson.TextTo(raw, &s) {
		return false
	}
	n, err := types.ParseCIDR(s)
	if err == nil {
		*to = *n
	}
	return err == nil
}

// address reads an address; an empty one is none.
func address(raw json.RawMessage, to *net.IP) bool {
	var s string
	if !plainjson.TextTo(raw, &s) {
		return false
	}
	if s == "" {
		return true
	}
	*to = net.ParseIP(s)
	return *to != nil
}
