package pods

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/attach/plan"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
)

// configsOf returns the configurations that Tenure's IPAM plugin is given in a step of a plan, as
// far as the node's agent answers it.
func configsOf(s plan.Step) (all []*poolspec.Config, err error) {
	if s.List == nil { // the plan does not attach it, and says why
		return nil, nil
	}
	runs, err := s.Invocations()
	if err != nil {
		return nil, err
	}
	var args []string
	for _, a := range s.Args {
		args = append(args, a.Key+"="+a.Value)
	}
	for _, run := range runs {
		var of struct {
			IPAM struct {
				Type string `json:"type"`
			} `json:"ipam"`
		}
		if json.Unmarshal(run.Config, &of) != nil || of.IPAM.Type != poolspec.Type {
			continue
		}
		conf, err := poolspec.ParseConfig(run.Config, strings.Join(args, ";"))
		if err != nil {
			return all, err
		}
		if conf.Mode == poolspec.ModeCluster {
			all = append(all, conf)
		}
	}
	return all, nil
}

// impossible says what of an interface's demands its pools can never meet, whoever has addresses:
// what it asks for by name, and the gateways of its default routes. Of a pool that is not known,
// whose shape is nil, nothing is said.
func impossible(s plan.Step, conf *poolspec.Config, shapes map[string]*allocator.Shape) (why []string) {
	for _, src := range conf.Sources {
		if shapes[src.Pool] == nil {
			return nil
		}
	}
	for _, r := range conf.Requested {
		if fault := neverGiven(conf, r, shapes); fault != "" {
			why = append(why, fault)
		}
	}
	for _, ask := range []struct {
		flag   string
		set    bool
		family allocator.Family
	}{{"isDefaultGW4", s.Gateway4, allocator.IPv4}, {"isDefaultGW6", s.Gateway6, allocator.IPv6}} {
		if ask.set && !s.Default && !hasGateway(conf, ask.family, shapes) {
			why = append(why, fmt.Sprintf("%s is set, and pool %s gives no %v address with a gateway: give its range of that family a gateway, or set the flag on another network",
				ask.flag, strings.Join(poolNames(conf), " and "), ask.family))
		}
	}
	return why
}

// neverGiven says why an address that is asked for can be given to nobody, or not by this network;
// empty: it can.
func neverGiven(conf *poolspec.Config, r poolspec.Requested, shapes map[string]*allocator.Shape) string {
	src, found, _ := conf.SourceOf(r.Addr, func(pool string) (*allocator.Shape, error) { return shapes[pool], nil })
	if !found {
		return fmt.Sprintf("it asks for %v, which lies in no range of pool %s: ask for an address of the pool, or make the pool larger", r.Addr, strings.Join(poolNames(conf), " and "))
	}
	shape := shapes[src.Pool]
	if err := shape.Assignable(r.Addr); err != nil {
		return fmt.Sprintf("it asks for %v of pool %s, which is given to nobody: %v", r.Addr, src.Pool, err)
	}
	if !src.View.Contains(r.Addr) {
		return fmt.Sprintf("it asks for %v of pool %s, which lies outside of what the network's configuration may take of the pool (%v)", r.Addr, src.Pool, src.View)
	}
	in, _ := shape.Locate(r.Addr)
	if bits, _ := src.Answer(r.Addr, in); r.Bits != 0 && bits != r.Bits {
		return fmt.Sprintf("it asks for %v/%d of pool %s, where the address has the prefix length %d: ask for that, or leave it out", r.Addr, r.Bits, src.Pool, bits)
	}
	return ""
}

// hasGateway reports whether an address of a family that an interface may get is answered with a
// gateway.
func hasGateway(conf *poolspec.Config, f allocator.Family, shapes map[string]*allocator.Shape) bool {
	for _, r := range conf.Requested {
		src, _, _ := conf.SourceOf(r.Addr, func(pool string) (*allocator.Shape, error) { return shapes[pool], nil })
		in, ok := shapes[src.Pool].Locate(r.Addr)
		if _, gateway := src.Answer(r.Addr, in); ok && allocator.FamilyOf(r.Addr) == f && gateway.IsValid() {
			return true
		}
	}
	for _, src := range conf.Sources {
		shape := shapes[src.Pool]
		for _, span := range shape.OrdinaryWithin(f, src.View) {
			in, ok := shape.Locate(span.From())
			if _, gateway := src.Answer(span.From(), in); ok && gateway.IsValid() {
				return true
			}
		}
	}
	return false
}

// poolNames returns the names of a configuration's pools, each once.
func poolNames(conf *poolspec.Config) (names []string) {
	for _, src := range conf.Sources {
		if len(names) == 0 || names[len(names)-1] != src.Pool {
			names = append(names, src.Pool)
		}
	}
	return names
}
