package plan

import (
	"net/netip"

	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/ipam/lean/plainjson"
)

// AppendTo appends p's JSON to b, in one line and as the tags of the types say: a
// plugin writes one plan in its life, and would spend more on having encoding/json
// learn the types.
func (p Plan) AppendTo(b []byte) []byte {
	b = p.Pod.AppendTo(append(b, `{"pod":`...))
	b = append(plainjson.AppendKey(b, "steps"), '[')
	for i, s := range p.Steps {
		if i > 0 {
			b = append(b, ',')
		}
		b = s.appendTo(b)
	}
	return append(facts.AppendWarnings(append(b, ']'), p.Warnings), '}')
}

func (s Step) appendTo(b []byte) []byte {
	b = plainjson.AppendText(append(b, `{"name":`...), s.Name)
	b = plainjson.AppendTextMember(b, "podNetwork", s.PodNetwork)
	b = appendTrue(b, "default", s.Default)
	b = plainjson.AppendText(plainjson.AppendKey(b, "ifName"), s.IfName)
	b = plainjson.AppendText(plainjson.AppendKey(b, "network"), s.Network)
	b = plainjson.AppendLine(plainjson.AppendKey(b, "list"), s.List)
	if len(s.Args) > 0 {
		b = append(plainjson.AppendKey(b, "args"), '[')
		for i, a := range s.Args {
			if i > 0 {
				b = append(b, ',')
			}
			b = plainjson.AppendText(append(b, `{"key":`...), a.Key)
			b = append(plainjson.AppendText(plainjson.AppendKey(b, "value"), a.Value), '}')
		}
		b = append(b, ']')
	}
	if len(s.Capabilities) > 0 {
		b = plainjson.AppendMap(plainjson.AppendKey(b, "capabilities"), s.Capabilities)
	}
	if len(s.Requested.IPs) > 0 || s.Requested.MAC != "" {
		b = append(plainjson.AppendKey(b, "want"), '{')
		if len(s.Requested.IPs) > 0 {
			b = appendAddrs(plainjson.AppendKey(b, "ips"), s.Requested.IPs)
		}
		b = append(plainjson.AppendTextMember(b, "mac", s.Requested.MAC), '}')
	}
	if s.DefaultRoute != nil {
		b = appendAddrs(plainjson.AppendKey(b, "defaultRoute"), *s.DefaultRoute)
	}
	b = appendTrue(b, "gateway4", s.Gateway4)
	b = appendTrue(b, "gateway6", s.Gateway6)
	b = plainjson.AppendTextMember(b, "guid", s.GUID)
	b = plainjson.AppendTextMember(b, "claim", s.Claim)
	if len(s.CNIArgs) > 0 {
		b = plainjson.AppendLine(plainjson.AppendKey(b, "cniArgs"), s.CNIArgs)
	}
	if d := s.Device; d != nil {
		b = append(plainjson.AppendKey(b, "device"), '{')
		b = plainjson.AppendTextMember(b, "resource", d.Resource)
		b = plainjson.AppendTextMember(b, "id", d.ID)
		b = plainjson.AppendTextMember(b, "name", d.Name)
		b = plainjson.AppendTextMember(b, "source", d.Source)
		b = append(plainjson.AppendTextMember(b, "file", d.File), '}')
	}
	return append(b, '}')
}

// appendTrue appends the member key unless its value is false.
func appendTrue(b []byte, key string, value bool) []byte {
	if !value {
		return b
	}
	return append(plainjson.AppendKey(b, key), "true"...)
}

func appendAddrs(b []byte, all []netip.Addr) []byte {
	b = append(b, '[')
	for i, a := range all {
		if i > 0 {
			b = append(b, ',')
		}
		b = plainjson.AppendText(b, a.String())
	}
	return append(b, ']')
}
