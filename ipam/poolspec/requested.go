package poolspec

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/tenure-ipam/tenure/allocator"
)

// runtimeConfig finds what the runtime says of addresses; whether it counts is
// decided later.
func (p *parser) runtimeConfig(top object) {
	if raw, ok := top.get("runtimeConfig"); ok {
		if o, ok := p.dict(top.at("runtimeConfig"), raw); ok {
			p.runtime.ranges, p.runtime.ips = o, o
		}
	}
	raw, ok := top.get("args")
	if !ok {
		return
	}
	args, ok := p.dict(top.at("args"), raw)
	if !ok {
		return
	}
	if raw, ok := args.get("cni"); ok {
		p.runtime.args, _ = p.dict(args.at("cni"), raw)
	}
}

// requested reads the addresses that were asked for. There are three places to ask. By the
// conventions the first one that names any address counts, and the others are ignored.
func (p *parser) requested(cniArgs string) {
	fromArgs := p.cniArgs(cniArgs)
	from := p.runtime.ips
	if _, ok := from.get("ips"); !ok {
		from = p.runtime.args
	}
	if _, ok := from.get("ips"); ok {
		for i, text := range p.texts(from, "ips") {
			if text != "" { // else it is reported
				p.request(fmt.Sprintf("%s[%d]", from.at("ips"), i), text)
			}
		}
		if fromArgs != "" {
			p.cfg.Ignored = append(p.cfg.Ignored, pathIP+": "+from.at("ips")+" counts")
		}
		return
	}
	if fromArgs == "" {
		return
	}
	p.kind = ErrArgs
	for text := range strings.SplitSeq(fromArgs, ",") {
		p.request(pathIP, strings.TrimSpace(text))
	}
	p.kind = ErrConfig
}

// maxRequested bounds how many addresses one interface may ask for.
const maxRequested = 64

// pathArgs begins where in CNI_ARGS something stands, and pathIP is where they ask for
// addresses.
const (
	pathArgs = "CNI_ARGS"
	pathIP   = pathArgs + " IP"
)

// isOfArgs reports whether what was ignored stands in CNI_ARGS.
func isOfArgs(ignored string) bool { return strings.HasPrefix(ignored, pathArgs+" ") }

// request reads one address with or without a prefix length.
func (p *parser) request(path, text string) {
	r := Requested{Path: path}
	var ok bool
	if strings.Contains(text, "/") {
		cidr, cidrOK := parsePrefix(&p.faults, path, text)
		r.Addr, r.Bits, ok = cidr.Addr(), cidr.Bits(), cidrOK
		if ok && r.Bits == 0 {
			p.addf(path, "write the prefix length of the address's range, or none", "%q has prefix length 0", text)
			return
		}
	} else {
		r.Addr, ok = parseAddr(&p.faults, path, text)
	}
	if !ok {
		return
	}
	for _, earlier := range p.cfg.Requested {
		if earlier.Addr == r.Addr {
			p.addf(path, "ask for each address once", "%v is asked for twice", r.Addr)
			return
		}
	}
	if len(p.cfg.Requested) == maxRequested {
		p.addf(path, "ask for fewer", "asks for more than %d addresses", maxRequested)
		return
	}
	p.cfg.Requested = append(p.cfg.Requested, r)
}

// cniArgs reads CNI_ARGS, "KEY=VALUE;KEY=VALUE", and returns what it asks for
// with IP. Keys that it does not know are a fault unless IgnoreUnknown is set,
// as everywhere in CNI. Values may contain "=".
func (p *parser) cniArgs(args string) (ip string) {
	p.kind = ErrArgs
	defer func() { p.kind = ErrConfig }()

	const where = pathArgs
	var unknown []string
	ignoreUnknown := false
	for pair := range strings.SplitSeq(args, ";") {
		key, value, ok := strings.Cut(pair, "=")
		switch {
		case pair == "":
		case !ok:
			p.addf(where, "write KEY=VALUE pairs with ; between them", "%q has no =", pair)
		case key == "IgnoreUnknown":
			ignoreUnknown = p.truth(key, value)
		case key == "IP":
			ip = value
		case key == "K8S_POD_NAMESPACE":
			p.cfg.Pod.Namespace = value
		case key == "K8S_POD_NAME":
			p.cfg.Pod.Name = value
		case key == "K8S_POD_UID":
			p.cfg.Pod.UID = value
		case key == ArgUnselected:
			p.cfg.Pod.Unselected = p.truth(key, value)
		case key == argClaim:
			p.cfg.Pod.Claim = value
		case key == "MAC", key == "K8S_POD_INFRA_CONTAINER_ID": // of no use for addresses
		default:
			unknown = append(unknown, key)
		}
	}
	if len(unknown) > 0 && !ignoreUnknown {
		p.addf(where, "remove them, or set IgnoreUnknown=1", "has keys that Tenure does not know: %s", strings.Join(unknown, ", "))
	}
	for _, key := range unknown {
		if key == "GATEWAY" && ignoreUnknown {
			p.cfg.Ignored = append(p.cfg.Ignored, where+" GATEWAY: the gateway is the range's")
		}
	}
	return ip
}

// truth reads the value of a key that is true or false.
func (p *parser) truth(key, value string) bool {
	switch strings.ToLower(value) {
	case "1", "true":
		return true
	case "0", "false":
		return false
	default:
		p.addf(pathArgs+" "+key, "write 1 or 0", "%q is neither true nor false", value)
		return false
	}
}

// checkRequested checks the requested addresses against inline sources.
func (p *parser) checkRequested() {
	for _, r := range p.cfg.Requested {
		src, ok := p.sourceOf(r)
		if !ok {
			p.add(r.Path, p.whyNot(r), "ask for an address that the network's configuration may give")
			continue
		}
		own, _ := src.inlineRangeOf(r.Addr)
		if r.Bits != 0 && r.Bits != own.Prefix.Bits() {
			p.addf(r.Path, fmt.Sprintf("ask for %v/%d, or leave the length out", r.Addr, own.Prefix.Bits()),
				"%v/%d has another prefix length than its range %v", r.Addr, r.Bits, own.Prefix)
		}
	}
}

// sourceOf returns the source that may give r.
func (p *parser) sourceOf(r Requested) (Source, bool) {
	for _, s := range p.cfg.Sources {
		if s.View.Contains(r.Addr) {
			return s, true
		}
	}
	return Source{}, false
}

// whyNot says why no source may give r.
func (p *parser) whyNot(r Requested) string {
	var cidrs []string
	for _, s := range p.cfg.Sources {
		for _, own := range s.Ranges {
			cidrs = append(cidrs, own.Prefix.String())
			if !own.Prefix.Contains(r.Addr) {
				continue
			}
			if !own.Prefix.Contains(own.Gateway) {
				own.Gateway = netip.Addr{}
			}
			shape, err := allocator.NewShape([]allocator.Range{own})
			if err == nil {
				err = shape.Assignable(r.Addr)
			}
			if err != nil {
				return err.Error()
			}
		}
	}
	return fmt.Sprintf("%v lies in none of the ranges %s", r.Addr, strings.Join(cidrs, ", "))
}
