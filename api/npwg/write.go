package npwg

import (
	"strconv"

	"github.com/tenure-ipam/tenure/ipam/lean/plainjson"
)

// AppendStatus appends the list for the status annotation to b, in one line, as the
// tags of [Status] say.
func AppendStatus(b []byte, list []Status) []byte {
	b = append(b, '[')
	for i, s := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = s.appendTo(b)
	}
	return append(b, ']')
}

func (s Status) appendTo(b []byte) []byte {
	b = plainjson.AppendText(append(b, `{"name":`...), s.Name)
	b = plainjson.AppendTextMember(b, "interface", s.Interface)
	b = plainjson.AppendTextsMember(b, "ips", s.IPs)
	b = plainjson.AppendTextMember(b, "mac", s.MAC)
	b = strconv.AppendBool(plainjson.AppendKey(b, "default"), s.Default)
	if s.DNS != nil {
		b = append(plainjson.AppendKey(b, "dns"), '{')
		b = plainjson.AppendTextsMember(b, "nameservers", s.DNS.Nameservers)
		b = plainjson.AppendTextMember(b, "domain", s.DNS.Domain)
		b = append(plainjson.AppendTextsMember(b, "search", s.DNS.Search), '}')
	}
	b = plainjson.AppendTextsMember(b, "default-route", s.DefaultRoute)
	b = plainjson.AppendTextsMember(b, "gateway", s.Gateway)
	if len(s.DeviceInfo) > 0 {
		b = plainjson.AppendLine(plainjson.AppendKey(b, "device-info"), s.DeviceInfo)
	}
	b = plainjson.AppendTextMember(b, "infiniband-guid", s.GUID)
	return append(plainjson.AppendTextsMember(b, "dev.tenure.warnings", s.Warnings), '}')
}
