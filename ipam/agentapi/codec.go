package agentapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strconv"

	"github.com/tenure-ipam/tenure/ipam/lean/plainjson"
)

// Messages are JSON as their tags say, written and read by hand: a plugin writes
// one and reads one in its life, and would spend 0.15 ms on having encoding/json
// learn their types; the agent would spend a tenth of an ADD on it.

// appendTo appends r's JSON to b.
func (r Request) appendTo(b []byte) ([]byte, error) {
	if len(r.Config) > 0 && !json.Valid(r.Config) {
		return b, errors.New("its configuration is not JSON")
	}
	if len(r.Ask) > 0 && !json.Valid(r.Ask) {
		return b, errors.New("what it asks is not JSON")
	}
	b = strconv.AppendInt(append(b, `{"v":`...), int64(r.Version), 10)
	b = plainjson.AppendText(plainjson.AppendKey(b, "verb"), string(r.Verb))
	b = plainjson.AppendTextMember(b, "containerID", r.ContainerID)
	b = plainjson.AppendTextMember(b, "netns", r.Netns)
	b = plainjson.AppendTextMember(b, "ifName", r.IfName)
	b = plainjson.AppendTextMember(b, "args", r.Args)
	b = plainjson.AppendTextMember(b, "netnsID", r.NetnsID)
	if len(r.Config) > 0 {
		b = append(plainjson.AppendKey(b, "config"), r.Config...)
	}
	if len(r.Ask) > 0 {
		b = append(plainjson.AppendKey(b, "ask"), r.Ask...)
	}
	b = plainjson.AppendIntMember(b, "deadlineMillis", r.DeadlineMillis)
	return append(b, '}'), nil
}

// parse reads body, valid JSON, into r. Config and Ask share its memory.
func (r *Request) parse(body json.RawMessage) error {
	return plainjson.ReadMembers(body, func(key []byte, v json.RawMessage) (err error) {
		switch string(key) {
		case "v":
			r.Version, err = number[int](v)
		case "verb":
			r.Verb, err = plainjson.ReadText[Verb](v)
		case "containerID":
			r.ContainerID, err = plainjson.ReadText[string](v)
		case "netns":
			r.Netns, err = plainjson.ReadText[string](v)
		case "ifName":
			r.IfName, err = plainjson.ReadText[string](v)
		case "args":
			r.Args, err = plainjson.ReadText[string](v)
		case "netnsID":
			r.NetnsID, err = plainjson.ReadText[string](v)
		case "config":
			r.Config = v
		case "ask":
			r.Ask = v
		case "deadlineMillis":
			r.DeadlineMillis, err = number[int64](v)
		}
		return err
	})
}

// appendTo appends r's JSON to b.
func (r Response) appendTo(b []byte) ([]byte, error) {
	if len(r.Facts) > 0 && !json.Valid(r.Facts) {
		return b, errors.New("the facts are not JSON")
	}
	b = strconv.AppendInt(append(b, `{"v":`...), int64(r.Version), 10)
	if r.Result != nil {
		b = append(r.Result.AppendMembers(append(plainjson.AppendKey(b, "result"), '{')), '}')
	}
	if r.Error != nil {
		b = strconv.AppendUint(append(plainjson.AppendKey(b, "error"), `{"code":`...), uint64(r.Error.Code), 10)
		b = plainjson.AppendText(plainjson.AppendKey(b, "msg"), r.Error.Msg)
		b = append(plainjson.AppendTextMember(b, "details", r.Error.Details), '}')
	}
	if len(r.Facts) > 0 {
		b = append(plainjson.AppendKey(b, "facts"), r.Facts...)
	}
	b = plainjson.AppendTextsMember(b, "warnings", r.Warnings)
	return append(b, '}'), nil
}

// AppendMembers appends the members of r's JSON to b, which ends inside an object.
// They are those of a CNI result, from version 1.0.0 on.
func (r *Result) AppendMembers(b []byte) []byte {
	b = append(plainjson.AppendKey(b, "ips"), '[')
	for i, ip := range r.IPs {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendPrefix(append(b, `{"address":`...), ip.Address)
		b = append(appendAddrMember(b, "gateway", ip.Gateway), '}')
	}
	b = append(b, ']')
	if len(r.Routes) > 0 {
		b = append(plainjson.AppendKey(b, "routes"), '[')
		for i, route := range r.Routes {
			if i > 0 {
				b = append(b, ',')
			}
			b = route.appendTo(b)
		}
		b = append(b, ']')
	}
	if !r.DNS.IsZero() {
		b = append(plainjson.AppendKey(b, "dns"), '{')
		b = plainjson.AppendTextsMember(b, "nameservers", r.DNS.Nameservers)
		b = plainjson.AppendTextMember(b, "domain", r.DNS.Domain)
		b = plainjson.AppendTextsMember(b, "search", r.DNS.Search)
		b = append(plainjson.AppendTextsMember(b, "options", r.DNS.Options), '}')
	}
	return b
}

func (r Route) appendTo(b []byte) []byte {
	b = appendPrefix(append(b, `{"dst":`...), r.Dst)
	b = appendAddrMember(b, "gw", r.GW)
	b = plainjson.AppendIntMember(b, "mtu", int64(r.MTU))
	b = plainjson.AppendIntMember(b, "advmss", int64(r.AdvMSS))
	b = plainjson.AppendIntMember(b, "priority", int64(r.Priority))
	if r.Table != nil {
		b = strconv.AppendInt(plainjson.AppendKey(b, "table"), int64(*r.Table), 10)
	}
	if r.Scope != nil {
		b = strconv.AppendInt(plainjson.AppendKey(b, "scope"), int64(*r.Scope), 10)
	}
	return append(b, '}')
}

// appendPrefix appends p, "" if it is zero.
func appendPrefix(b []byte, p netip.Prefix) []byte {
	if p == (netip.Prefix{}) {
		return append(b, '"', '"')
	}
	return append(p.AppendTo(append(b, '"')), '"')
}

// appendAddrMember appends the member key unless a is zero.
func appendAddrMember(b []byte, key string, a netip.Addr) []byte {
	if !a.IsValid() {
		return b
	}
	return plainjson.AppendText(plainjson.AppendKey(b, key), a.String()) // it may have a zone
}

// parse reads body, valid JSON, into r. Only Facts shares its memory.
func (r *Response) parse(body json.RawMessage) error {
	return plainjson.ReadMembers(body, func(key []byte, v json.RawMessage) (err error) {
		switch string(key) {
		case "v":
			r.Version, err = number[int](v)
		case "result":
			if !plainjson.IsNull(v) {
				r.Result = new(Result)
				err = r.Result.parse(v)
			}
		case "error":
			if !plainjson.IsNull(v) {
				r.Error = new(Error)
				err = r.Error.parse(v)
			}
		case "facts":
			r.Facts = v
		case "warnings":
			r.Warnings, err = plainjson.ReadList(v, plainjson.ReadText[string])
		}
		return err
	})
}

func (e *Error) parse(raw json.RawMessage) error {
	return plainjson.ReadMembers(raw, func(key []byte, v json.RawMessage) (err error) {
		switch string(key) {
		case "code":
			e.Code, err = number[Code](v)
		case "msg":
			e.Msg, err = plainjson.ReadText[string](v)
		case "details":
			e.Details, err = plainjson.ReadText[string](v)
		}
		return err
	})
}

func (r *Result) parse(raw json.RawMessage) error {
	return plainjson.ReadMembers(raw, func(key []byte, v json.RawMessage) (err error) {
		switch string(key) {
		case "ips":
			r.IPs, err = plainjson.ReadList(v, parseIP)
		case "routes":
			r.Routes, err = plainjson.ReadList(v, parseRoute)
		case "dns":
			err = r.DNS.parse(v)
		}
		return err
	})
}

func parseIP(raw json.RawMessage) (ip IP, err error) {
	err = plainjson.ReadMembers(raw, func(key []byte, v json.RawMessage) (err error) {
		switch string(key) {
		case "address":
			ip.Address, err = parsePrefix(v)
		case "gateway":
			ip.Gateway, err = parseAddr(v)
		}
		return err
	})
	return ip, err
}

func parseRoute(raw json.RawMessage) (r Route, err error) {
	err = plainjson.ReadMembers(raw, func(key []byte, v json.RawMessage) (err error) {
		switch string(key) {
		case "dst":
			r.Dst, err = parsePrefix(v)
		case "gw":
			r.GW, err = parseAddr(v)
		case "mtu":
			r.MTU, err = number[int](v)
		case "advmss":
			r.AdvMSS, err = number[int](v)
		case "priority":
			r.Priority, err = number[int](v)
		case "table":
			r.Table, err = optional(v)
		case "scope":
			r.Scope, err = optional(v)
		}
		return err
	})
	return r, err
}

func (d *DNS) parse(raw json.RawMessage) error {
	return plainjson.ReadMembers(raw, func(key []byte, v json.RawMessage) (err error) {
		switch string(key) {
		case "nameservers":
			d.Nameservers, err = plainjson.ReadList(v, plainjson.ReadText[string])
		case "domain":
			d.Domain, err = plainjson.ReadText[string](v)
		case "search":
			d.Search, err = plainjson.ReadList(v, plainjson.ReadText[string])
		case "options":
			d.Options, err = plainjson.ReadList(v, plainjson.ReadText[string])
		}
		return err
	})
}

func number[T int | int64 | Code](raw json.RawMessage) (T, error) {
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || int64(T(n)) != n || T(n) < 0 != (n < 0) {
		return 0, fmt.Errorf("%.40q is not a number that fits", raw)
	}
	return T(n), nil
}

// optional reads a number; null is none.
func optional(raw json.RawMessage) (*int, error) {
	if plainjson.IsNull(raw) {
		return nil, nil //nolint:nilnil // the number's absence
	}
	n, err := number[int](raw)
	return &n, err
}

func parsePrefix(raw json.RawMessage) (netip.Prefix, error) {
	s, err := plainjson.ReadText[string](raw)
	if err != nil || s == "" {
		return netip.Prefix{}, err
	}
	return netip.ParsePrefix(s)
}

func parseAddr(raw json.RawMessage) (netip.Addr, error) {
	s, err := plainjson.ReadText[string](raw)
	if err != nil || s == "" {
		return netip.Addr{}, err
	}
	return netip.ParseAddr(s)
}
