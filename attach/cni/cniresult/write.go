package cniresult

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"strconv"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/tenure-ipam/tenure/ipam/lean/plainjson"
)

// Text returns a result as JSON, in its own version and in one line.
func Text(r types.Result) (json.RawMessage, error) {
	if full, ok := r.(*types100.Result); ok && writable(full) {
		return appendResult(make([]byte, 0, 512), full), nil
	}
	return json.Marshal(r)
}

// Print writes a result as a plugin answers it.
func Print(w io.Writer, r types.Result) error {
	text, err := Text(r)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := json.Indent(&b, text, "", "    "); err != nil {
		return err
	}
	_, err = w.Write(b.Bytes())
	return err
}

// writable reports whether the library would write the result without an error, and
// without a null.
func writable(r *types100.Result) bool {
	for _, i := range r.Interfaces {
		if i == nil {
			return false
		}
	}
	for _, ip := range r.IPs {
		if ip == nil || !isNetwork(ip.Address) || !isAddress(ip.Gateway) {
			return false
		}
	}
	for _, to := range r.Routes {
		if to == nil || !isNetwork(to.Dst) || !isAddress(to.GW) {
			return false
		}
	}
	return true
}

func isNetwork(n net.IPNet) bool { return len(n.IP) > 0 && n.String() != "<nil>" }

func isAddress(ip net.IP) bool {
	return len(ip) == 0 || len(ip) == net.IPv4len || len(ip) == net.IPv6len
}

// appendResult appends a result, its members in the library's order.
func appendResult(b []byte, r *types100.Result) []byte {
	b = plainjson.AppendTextMember(append(b, '{'), "cniVersion", r.CNIVersion)
	if !r.DNS.IsEmpty() {
		b = append(plainjson.AppendKey(b, "dns"), '{')
		b = plainjson.AppendTextMember(b, "domain", r.DNS.Domain)
		b = plainjson.AppendTextsMember(b, "nameservers", r.DNS.Nameservers)
		b = plainjson.AppendTextsMember(b, "options", r.DNS.Options)
		b = append(plainjson.AppendTextsMember(b, "search", r.DNS.Search), '}')
	}
	b = appendList(b, "interfaces", r.Interfaces, appendInterface)
	b = appendList(b, "ips", r.IPs, appendIP)
	return append(appendList(b, "routes", r.Routes, appendRoute), '}')
}

func appendInterface(b []byte, i *types100.Interface) []byte {
	b = plainjson.AppendTextMember(b, "mac", i.Mac)
	b = plainjson.AppendIntMember(b, "mtu", int64(i.Mtu))
	b = plainjson.AppendText(plainjson.AppendKey(b, "name"), i.Name)
	b = plainjson.AppendTextMember(b, "pciID", i.PciID)
	b = plainjson.AppendTextMember(b, "sandbox", i.Sandbox)
	return plainjson.AppendTextMember(b, "socketPath", i.SocketPath)
}

func appendIP(b []byte, ip *types100.IPConfig) []byte {
	b = plainjson.AppendText(plainjson.AppendKey(b, "address"), ip.Address.String())
	b = appendAddress(b, "gateway", ip.Gateway)
	return appendNumber(b, "interface", ip.Interface)
}

func appendRoute(b []byte, r *types.Route) []byte {
	b = plainjson.AppendIntMember(b, "advmss", int64(r.AdvMSS))
	b = plainjson.AppendText(plainjson.AppendKey(b, "dst"), r.Dst.String())
	b = appendAddress(b, "gw", r.GW)
	b = plainjson.AppendIntMember(b, "mtu", int64(r.MTU))
	b = plainjson.AppendIntMember(b, "priority", int64(r.Priority))
	b = appendNumber(b, "scope", r.Scope)
	return appendNumber(b, "table", r.Table)
}

// appendList appends the member key unless its list is empty.
func appendList[T any](b []byte, key string, items []*T, one func([]byte, *T) []byte) []byte {
	if len(items) == 0 {
		return b
	}
	b = append(plainjson.AppendKey(b, key), '[')
	for i, item := range items {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(one(append(b, '{'), item), '}')
	}
	return append(b, ']')
}

func appendAddress(b []byte, key string, ip net.IP) []byte {
	if len(ip) == 0 {
		return b
	}
	return plainjson.AppendText(plainjson.AppendKey(b, key), ip.String())
}

// appendNumber appends the member key unless it has no value.
func appendNumber(b []byte, key string, n *int) []byte {
	if n == nil {
		return b
	}
	return strconv.AppendInt(plainjson.AppendKey(b, key), int64(*n), 10)
}
