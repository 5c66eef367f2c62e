package poolspec

import (
	"encoding/json"
	"fmt"
	"net/netip"
)

// The keys under which a runtime says to GC what to keep. libcni sends both; the
// second is what the first was called before the specification settled it
// (https://github.com/containernetworking/cni/issues/1101).
const (
	keyAttachments    = "cni.dev/valid-attachments"
	keyOldAttachments = "cni.dev/attachments"
)

// ParseRelease reads of a configuration only what DEL and GC need: CNIVersion, Name, Mode, the
// paths and the valid attachments. It ignores faults elsewhere: a configuration that has become
// faulty must not keep an address from being freed.
func ParseRelease(stdin []byte) (*Config, error) {
	p := parser{faults: faults{kind: ErrConfig}}
	top, ok := p.document(stdin)
	if !ok {
		return nil, p.err()
	}
	p.name(top)
	p.attachments(top)
	must := p.list // what follows is read as far as it can be

	p.cfg.CNIVersion = p.text(top, "cniVersion")
	if raw, ok := top.get("ipam"); ok {
		p.ipam, _ = p.dict("ipam", raw)
	}
	p.settings()
	p.cfg.Ignored = nil
	p.list = must
	if err := p.err(); err != nil {
		return nil, err
	}
	return &p.cfg, nil
}

// attachments reads what GC is to keep. That the key is absent is not the same
// as null or an empty list, which both mean that nothing is to be kept.
func (p *parser) attachments(top object) {
	key := keyAttachments
	raw, ok := top.find(key)
	if !ok {
		key = keyOldAttachments
		raw, ok = top.find(key)
	}
	if !ok {
		return
	}
	p.cfg.HasValidAttachments = true
	for i, item := range p.items(top.at(key), raw) {
		o, ok := p.dict(fmt.Sprintf("%s[%d]", top.at(key), i), item)
		if !ok {
			continue
		}
		ref := AttachmentRef{ContainerID: p.text(o, "containerID"), IfName: p.text(o, "ifname")}
		if ref.ContainerID == "" {
			p.add(o.at("containerID"), "is missing", "name the container, so that nothing of it is freed by mistake")
		}
		p.cfg.ValidAttachments = append(p.cfg.ValidAttachments, ref)
	}
}

// PrevAddresses returns the addresses in PrevResult, of whichever CNI version it
// is. Ok is false if there is no PrevResult.
func (c *Config) PrevAddresses() (addrs []netip.Prefix, ok bool, err error) {
	if c.PrevResult == nil {
		return nil, false, nil
	}
	type old struct {
		IP string `json:"ip"`
	}
	var result struct {
		IPs []struct {
			Address string `json:"address"`
		} `json:"ips"`
		IP4 *old `json:"ip4"`
		IP6 *old `json:"ip6"`
	}
	fs := faults{kind: ErrConfig}
	if err := json.Unmarshal(c.PrevResult, &result); err != nil {
		fs.add("prevResult", err.Error(), "pass the result of ADD")
		return nil, true, fs.err()
	}
	read := func(path, text string) {
		if cidr, ok := parsePrefix(&fs, path, text); ok {
			addrs = append(addrs, cidr)
		}
	}
	for i, ip := range result.IPs {
		read(fmt.Sprintf("prevResult.ips[%d].address", i), ip.Address)
	}
	if result.IP4 != nil {
		read("prevResult.ip4.ip", result.IP4.IP)
	}
	if result.IP6 != nil {
		read("prevResult.ip6.ip", result.IP6.IP)
	}
	if err := fs.err(); err != nil {
		return nil, true, err
	}
	return addrs, true, nil
}
