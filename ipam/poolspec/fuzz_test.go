package poolspec

import (
	"net/netip"
	"reflect"
	"testing"

	"github.com/tenure-ipam/tenure/allocator"
)

func FuzzParseConfig(f *testing.F) {
	for _, ipam := range []string{
		`"pool": "a"`,
		`"pools": ["a", "b"], "mode": "cluster", "socket": "/s", "statusWhenFull": true`,
		`"range": "192.168.2.225-192.168.2.230/28", "gateway": "192.168.2.1", "exclude": ["192.168.2.229/30"]`,
		`"ipRanges": [{"range": "10.0.0.0/24", "range_start": "10.0.0.5"}, {"range": "fd00::/64", "gateway": "fd00::1"}], "network_name": "N"`,
		`"ranges": [[{"subnet": "10.10.0.0/16", "rangeStart": "10.10.1.20"}, {"subnet": "172.16.5.0/24"}], [{"subnet": "fd00::/64"}]], "routes": [{"dst": "::/0"}]`,
		`"subnet": "10.0.0.0/30", "mode": "local", "dns": {"nameservers": ["x"]}`,
	} {
		f.Add([]byte(network(ipam)), "")
		f.Add([]byte(network(ipam, `"runtimeConfig": {"ips": ["10.0.0.6"], "ipRanges": [[{"subnet": "10.0.0.0/24"}]]}`,
			`"args": {"cni": {"ips": ["fd00::5/64"]}}`, `"cni.dev/valid-attachments": null`, `"prevResult": {"ips": [{"address": "10.0.0.6/24"}]}`)), "IgnoreUnknown=1;IP=10.0.0.9")
	}
	f.Fuzz(func(t *testing.T, config []byte, args string) {
		if c, err := ParseRelease(config); err == nil && c.Name == "" {
			t.Error("a release without a network")
		}
		if _, err := ParseNetwork(config, "nad"); err != nil {
			faultsOf(t, err)
		}
		var r Reader
		sameReading(t, &r, config, "")
		sameReading(t, &r, config, args)
		c, err := ParseConfig(config, args)
		if err != nil {
			faultsOf(t, err)
			return
		}
		checkConfig(t, c)
		again, err := ParseConfig(config, args)
		if err != nil || !reflect.DeepEqual(c, again) {
			t.Errorf("read once %+v, then %+v, %v", c, again, err)
		}
	})
}

// checkConfig checks what holds for every accepted configuration.
func checkConfig(t *testing.T, c *Config) {
	t.Helper()
	if c.Name == "" || len(c.Sources) == 0 {
		t.Errorf("no name or no source in %+v", c)
	}
	if _, _, err := c.PrevAddresses(); err != nil {
		faultsOf(t, err)
	}
	for _, s := range c.Sources {
		if !isPoolName(s.Pool) {
			t.Errorf("%q is no pool's name", s.Pool)
		}
		if s.Implicit == nil {
			if len(s.Ranges) > 0 || s.Families != nil || !s.View.IsAll() || c.Mode == ModeLocal {
				t.Errorf("bad named source %+v", s)
			}
			continue
		}
		shape, err := ParsePool(*s.Implicit)
		if err != nil {
			t.Fatalf("%+v is no pool: %v", *s.Implicit, err)
		}
		// The view has an address of its family, and the pool can give it.
		b := netip.IPv4Unspecified()
		if s.Families[0] == allocator.IPv6 {
			b = netip.IPv6Unspecified()
		}
		if _, ok := shape.NextBlock(s.Families[0], b.BitLen(), s.View, b); !ok || len(s.Families) != 1 {
			t.Errorf("pool %+v has nothing of %v, %v", *s.Implicit, s.Families, s.View)
		}
		if united, _, err := Unite([]Member{MemberOf("a", c.Sources, s.Pool)}); err != nil || !reflect.DeepEqual(united, *s.Implicit) {
			t.Errorf("%+v united with nothing is %+v, %v", *s.Implicit, united, err)
		}
	}
	for _, r := range c.Requested {
		inside := c.Sources[0].Implicit == nil
		for _, s := range c.Sources {
			inside = inside || s.View.Contains(r.Addr)
		}
		if !inside || allocator.FamilyOf(r.Addr) == 0 {
			t.Errorf("%v may be asked for of no source", r)
		}
	}
}

// FuzzInlineRange varies only what stands in a range, and so reaches further
// than [FuzzParseConfig] does.
func FuzzInlineRange(f *testing.F) {
	f.Add("192.168.2.225/28", "192.168.2.226", "192.168.2.230", "192.168.2.228/30", "192.168.2.1", "192.168.2.0/24", "192.168.2.229")
	f.Add("fd00::5-fd00::9/64", "", "", "fd00::6-fd00::7", "fd00::", "fd00::/48", "fd00::5/64")
	f.Add("10.0.0.0/24", "10.0.0.0", "10.0.0.255", "10.0.0.4", "10.0.0.1", "10.0.0.0/31", "")
	f.Add("10.0.0.0/24", "", "", "", "", "0.0.0.0/10", "")
	f.Add("10.0.0.0/24", "10.0.0.0", "10.0.0.255", "10.0.0.4", "10.0.0.1", "10.0.0.0/31", "10.0.0.0/24")
	f.Fuzz(func(t *testing.T, cidr, start, end, exclude, gateway, other, ip string) {
		q := func(s string) string { return string(quote(s)) }
		top := `"args": {"cni": {"ips": [` + q(ip) + `]}}`
		if ip == "" {
			top = `"args": {}`
		}
		for _, config := range []string{
			network(`"range": `+q(cidr)+`, "range_start": `+q(start)+`, "range_end": `+q(end)+`, "gateway": `+q(gateway)+
				`, "exclude": [`+q(exclude)+`, "10.0.0.9"], "ipRanges": [{"range": `+q(other)+`}], "network_name": `+q(ip), top),
			network(`"mode": "local", "ranges": [[{"subnet": `+q(cidr)+`, "rangeStart": `+q(start)+`, "rangeEnd": `+q(end)+
				`, "gateway": `+q(gateway)+`}], [{"subnet": `+q(other)+`}]]`, top),
		} {
			c, err := ParseConfig([]byte(config), "")
			if err != nil {
				faultsOf(t, err)
				continue
			}
			checkConfig(t, c)
		}
	})
}

func FuzzParsePool(f *testing.F) {
	f.Add("10.0.0.0/24", "10.0.0.10", "10.0.0.99", "10.0.0.20-10.0.0.30", "10.0.0.64/29", "10.0.0.1", "fd00::/64", 16)
	f.Add("10.0.0.0/31", "", "", "", "", "", "10.0.0.0/31", 0)
	f.Add("0.0.0.0/0", "", "", "::/0", "", "::", "::/0", 256)
	f.Fuzz(func(t *testing.T, cidr, start, end, exclude, static, gateway, other string, size int) {
		text := PoolText{BlockSize: size, Ranges: []RangeText{{CIDR: cidr, Start: start, End: end, Gateway: gateway}, {CIDR: other}}}
		if exclude != "" {
			text.Ranges[0].Exclude = []string{exclude}
		}
		if static != "" {
			text.Ranges[0].StaticOnly = []string{static}
		}
		shape, err := ParsePool(text)
		if err != nil {
			faultsOf(t, err)
			return
		}
		again, err := ParsePool(textOf(shape, size))
		if err != nil {
			t.Fatalf("the text of an accepted pool is none: %v", err)
		}
		if !reflect.DeepEqual(shape, again) {
			t.Errorf("got %+v; want %+v", again, shape)
		}
	})
}

// textOf writes shape as a text.
func textOf(shape *allocator.Shape, blockSize int) PoolText {
	text := PoolText{BlockSize: blockSize}
	for _, r := range shape.Ranges() {
		rt := RangeText{CIDR: r.Prefix.String(), Start: r.Start.String(), End: r.End.String()}
		for _, x := range r.Exclude {
			rt.Exclude = append(rt.Exclude, spanText(x))
		}
		for _, x := range r.StaticOnly {
			rt.StaticOnly = append(rt.StaticOnly, spanText(x))
		}
		if r.Gateway.IsValid() {
			rt.Gateway = r.Gateway.String()
		}
		text.Ranges = append(text.Ranges, rt)
	}
	return text
}
