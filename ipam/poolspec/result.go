package poolspec

import "fmt"

// result reads what goes into the result as it is: routes, dns and resolvConf.
func (p *parser) result() {
	if raw, ok := p.ipam.get("routes"); ok {
		for i, item := range p.items(p.ipam.at("routes"), raw) {
			if o, ok := p.dict(fmt.Sprintf("%s[%d]", p.ipam.at("routes"), i), item); ok {
				p.route(o)
			}
		}
	}
	p.cfg.ResolvConf = p.absolute("resolvConf", "")
	raw, ok := p.ipam.get("dns")
	if !ok {
		return
	}
	o, ok := p.dict(p.ipam.at("dns"), raw)
	if !ok || isZero(raw) {
		return
	}
	if p.cfg.ResolvConf != "" {
		p.add(o.path, "says what resolvConf says as well", "keep one of them")
	}
	p.only(o, "nameservers", "domain", "search", "options")
	p.cfg.DNS = DNS{
		Nameservers: p.texts(o, "nameservers"),
		Domain:      p.text(o, "domain"),
		Search:      p.texts(o, "search"),
		Options:     p.texts(o, "options"),
	}
}

// route reads one route. Host bits of the destination mean nothing.
func (p *parser) route(o object) {
	p.only(o, "dst", "gw", "mtu", "advmss", "priority", "table", "scope")
	var r Route
	if dst := p.text(o, "dst"); dst == "" {
		p.add(o.at("dst"), "is missing", "write the destination as a CIDR, 0.0.0.0/0 for a default route")
	} else if cidr, ok := parsePrefix(&p.faults, o.at("dst"), dst); ok {
		r.Dst = cidr.Masked()
	}
	r.GW = optionalAddr(&p.faults, o.at("gw"), p.text(o, "gw"))
	if r.GW.IsValid() && r.Dst.IsValid() && r.GW.Is4() != r.Dst.Addr().Is4() {
		p.addf(o.at("gw"), "name a gateway of the destination's family", "%v is of another family than %v", r.GW, r.Dst)
	}
	for _, n := range []struct {
		key string
		to  *int
	}{{"mtu", &r.MTU}, {"advmss", &r.AdvMSS}, {"priority", &r.Priority}} {
		if v := p.number(o, n.key); v != nil {
			*n.to = *v
		}
	}
	r.Table, r.Scope = p.number(o, "table"), p.number(o, "scope")
	p.cfg.Routes = append(p.cfg.Routes, r)
}
