package foreign

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// BenchmarkLook weighs what 20,000 pods show of 500 pools, each with a definition of its own.
func BenchmarkLook(b *testing.B) {
	f := Facts{Now: now, Agents: map[protocol.NodeName]bool{}, Leases: map[protocol.PoolName][]protocol.Lease{}, Reports: map[protocol.NodeName]protocol.Report{}}
	var pools []Pool
	for i := range 500 {
		cidr := fmt.Sprintf("10.%d.%d.0/24", i/250, i%250)
		shape, err := poolspec.ParsePool(poolspec.PoolText{Ranges: []poolspec.RangeText{{CIDR: cidr}}})
		if err != nil {
			b.Fatal(err)
		}
		name := fmt.Sprint("net-", i)
		f.Definitions = append(f.Definitions, ReadDefinition("ns", name, fmt.Sprintf(`{"cniVersion":"1.0.0","name":%q,"type":"macvlan","ipam":{"type":"whereabouts","range":%q}}`, name, cidr), nil))
		pools = append(pools, Pool{Name: protocol.PoolName(name), Whole: shape, New: shape.Usable(), CheckAll: true})
		for k := range 40 {
			p := pod(fmt.Sprint("p-", i, "-", k), "ns/"+name, fmt.Sprintf("10.%d.%d.%d", i/250, i%250, k+2))
			p.Node = protocol.NodeName(fmt.Sprint("n", k))
			f.Pods = append(f.Pods, p)
			f.Records = append(f.Records, Record{Addr: netip.MustParseAddr(fmt.Sprintf("10.%d.%d.%d", i/250, i%250, k+2)), PodNamespace: "ns", PodName: p.Name})
		}
	}
	for b.Loop() {
		e := Gather(f)
		for i := range pools {
			e.Weigh(&pools[i])
		}
	}
}
