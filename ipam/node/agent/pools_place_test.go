package agent

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-ipam/tenure/ipam/poolspec"
)

// domainsOf are pools of the default domain, which are listed: from the third list on those that
// are there by then, if these are others.
type domainsOf struct {
	Pools
	all, then []poolspec.DomainPool
	lists     int
}

func (d *domainsOf) DomainPools(context.Context) ([]poolspec.DomainPool, error) {
	if d.lists++; d.lists > 2 && d.then != nil {
		return d.then, nil
	}
	return d.all, nil
}

func domainPool(name string, cidrs ...string) poolspec.DomainPool {
	p := poolspec.DomainPool{Name: name}
	for _, c := range cidrs {
		p.CIDRs = append(p.CIDRs, netip.MustParsePrefix(c))
	}
	return p
}

// TestPlace: a configuration of ranges without a name is of the pool that has them; it is waited
// for where there is none yet, and who bridges two is told both.
func TestPlace(t *testing.T) {
	for _, tt := range []struct {
		name, ipam, addr string
		then             []poolspec.DomainPool // listed after a while
		want, why        string
		lists            bool
	}{
		{name: "followed", ipam: `"range":"10.0.0.128/25"`, want: "range-10-0-0-0-24"},
		{name: "listed", ipam: `"range":"10.1.0.0/24"`, want: "default-domain", lists: true},
		{name: "of another domain", ipam: `"range":"10.0.0.0/27"`, want: "range-10-0-0-0-24"},
		{name: "with a name", ipam: `"range":"10.7.0.0/24","network_name":"lan"`, want: "lan"},
		{name: "made meanwhile", ipam: `"range":"10.3.0.0/24"`, then: []poolspec.DomainPool{domainPool("range-10-3-0-0-24", "10.3.0.0/24")}, want: "range-10-3-0-0-24", lists: true},
		{name: "never made", ipam: `"range":"10.3.0.0/24"`, why: "no pool has [10.3.0.0/24] yet", lists: true},
		{name: "not in the pool yet", ipam: `"range":"10.1.0.0/16"`, why: "pool default-domain does not have 10.1.0.0/16 yet", lists: true},
		{name: "a bridge", ipam: `"range":"10.0.0.0/8"`, why: "overlap those of pools default-domain and range-10-0-0-0-24", lists: true},
		{name: "a claim of a pool where the definition was", ipam: `"range":"10.1.0.0/24"`, addr: "10.0.0.9/24", want: "range-10-0-0-0-24"},
		{name: "a claim of a pool that is listed", ipam: `"range":"10.0.0.0/24"`, addr: "10.1.0.9/24", want: "default-domain", lists: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, _ := newBubbleAgent(t)
				addPool(t, a, "range-10-0-0-0-24", poolspec.RangeText{CIDR: "10.0.0.0/24"}).known.Domain = poolspec.DefaultDomain
				pools := &domainsOf{then: tt.then, all: []poolspec.DomainPool{domainPool("default-domain", "10.1.0.0/24"), domainPool("range-10-0-0-0-24", "10.0.0.0/24")}}
				a.cl.Pools = pools
				conf, err := poolspec.ParseConfig([]byte(`{"cniVersion":"1.1.0","name":"net","type":"bridge","ipam":{"type":"tenure",`+tt.ipam+`}}`), "")
				if err != nil {
					t.Fatal(err)
				}
				var addrs []netip.Prefix
				if tt.addr != "" {
					addrs = append(addrs, netip.MustParsePrefix(tt.addr))
				}
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				placed, err := a.pools.place(ctx, conf, addrs...)
				switch {
				case tt.why != "" && (err == nil || !strings.Contains(err.Error(), tt.why) || !passes(err)):
					t.Errorf("error %v; want one that passes, with %q", err, tt.why)
				case tt.why == "" && err != nil:
					t.Error(err)
				case tt.why == "" && placed.Sources[0].Pool != tt.want:
					t.Errorf("in pool %s; want %s", placed.Sources[0].Pool, tt.want)
				}
				if (pools.lists > 0) != tt.lists || pools.lists > 6 {
					t.Errorf("listed %d times; want %v", pools.lists, tt.lists)
				}
			})
		})
	}
}
