package ui

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/state"
)

// drawn is the most addresses of a range that are drawn whole: a /15 has as many. Of a larger range
// only those rows are drawn of which something is leased.
const drawn = 1 << 17

// Cells have a letter for each address. One that the filter leaves out has the capital, and free a
// comma.
const (
	cellFree     = '.' // nobody has it
	cellNever    = 'x' // the pool gives it to nobody
	cellPod      = 'p' // a pod has it, by what the node has published
	cellClaim    = 'c' // granted to an IPAMClaim
	cellRequest  = 'q' // granted to a pod of another node than the holder
	cellCeded    = 'e' // the node has ceded it to the cluster, and it is granted to nobody
	cellKept     = 'k' // a pod has it by another IPAM
	cellReserved = 'r' // an IPReservation keeps it
)

// addressMap is a pool as the page draws it.
type addressMap struct {
	Pool   string     `json:"pool"`
	Ranges []rangeMap `json:"ranges"`
	// Nodes and Namespaces are what can be filtered by.
	Nodes      []string `json:"nodes"`
	Namespaces []string `json:"namespaces"`
}

// rangeMap is one range, or, without a CIDR, what is leased outside of all.
type rangeMap struct {
	CIDR string `json:"cidr"`
	// Whole is false where rows without a lease are left out.
	Whole bool     `json:"whole"`
	Rows  []rowMap `json:"rows"`
}

// rowMap is up to 256 addresses: those of a /24 or /120 that are of a range.
type rowMap struct {
	First  string     `json:"first"`
	Cells  string     `json:"cells"`
	Leases []leaseMap `json:"leases,omitempty"`
}

// leaseMap is the lease of a part of a row.
type leaseMap struct {
	At   int    `json:"at"` // the index of its first address in the row
	Size int    `json:"size"`
	Node string `json:"node,omitempty"` // empty: the cluster holds
	// Unreachable says why nobody can have what is free in it.
	Unreachable string `json:"unreachable,omitempty"`
}

// A filter selects addresses by who has them.
type filter struct {
	namespace, node string // empty: any
}

func (f filter) selects(namespace, node string) bool {
	return (f.namespace == "" || f.namespace == namespace) && (f.node == "" || f.node == node)
}

// facts are what the cluster says of one pool.
type facts struct {
	pool   *v1alpha1.IPPool
	leases []*v1alpha1.IPLease
	known  state.Known
	// pods are who uses what was granted to a claim or a request, by the UID of these.
	pods map[string]state.Use
}

// row is a rowMap that is being made.
type row struct {
	first netip.Addr
	cells []byte
	rowMap
}

// draw makes the map of a pool.
func draw(f facts, of filter) addressMap {
	d := drawing{filter: of, facts: f, nodes: map[string]bool{}, namespaces: map[string]bool{}}
	m := addressMap{Pool: f.pool.Name, Ranges: []rangeMap{}}
	byRow := map[netip.Prefix][]*v1alpha1.IPLease{}
	for _, l := range f.leases {
		if block, err := netip.ParsePrefix(l.Spec.Block); err == nil { // the schema admits no other
			at := rowOf(block.Addr())
			byRow[at] = append(byRow[at], l)
		}
	}
	shape := state.ShapeOf(f.pool)
	var ranges []netip.Prefix
	for _, r := range f.pool.Spec.Ranges {
		cidr, err := netip.ParsePrefix(r.CIDR)
		if err != nil || slices.Contains(ranges, cidr.Masked()) { // the pool's condition says so; or drawn
			continue
		}
		cidr = cidr.Masked()
		ranges = append(ranges, cidr)
		size := cidr.Addr().BitLen() - cidr.Bits()
		rm := rangeMap{CIDR: cidr.String(), Whole: size < 63 && 1<<size <= drawn, Rows: []rowMap{}}
		for _, at := range rowsOf(cidr, rm.Whole, byRow) {
			rm.Rows = append(rm.Rows, d.row(at, cidr, shape, byRow[at]))
		}
		m.Ranges = append(m.Ranges, rm)
	}
	if rows := d.outside(ranges, shape); len(rows) > 0 {
		m.Ranges = append(m.Ranges, rangeMap{Rows: rows})
	}
	m.Nodes, m.Namespaces = sorted(d.nodes), sorted(d.namespaces)
	return m
}

// rowOf returns the row that an address is in. Of the zero Addr it is not valid.
func rowOf(a netip.Addr) netip.Prefix {
	return netip.PrefixFrom(a, a.BitLen()-8).Masked()
}

// rowsOf returns the rows of a range, in order: all, or those with leases.
func rowsOf(cidr netip.Prefix, whole bool, leased map[netip.Prefix][]*v1alpha1.IPLease) (rows []netip.Prefix) {
	if !whole {
		rows = slices.SortedFunc(maps.Keys(leased), netip.Prefix.Compare)
		return slices.DeleteFunc(rows, func(at netip.Prefix) bool { return !cidr.Overlaps(at) })
	}
	last := netipx.PrefixLastIP(cidr)
	for at := rowOf(cidr.Addr()); at.IsValid() && at.Addr().Compare(last) <= 0; at = rowOf(netipx.PrefixLastIP(at).Next()) {
		rows = append(rows, at)
	}
	return rows
}

// A drawing is a map that is being made.
type drawing struct {
	filter
	facts
	nodes, namespaces map[string]bool
}

// outside draws the leases of which nothing is in a range.
func (d drawing) outside(ranges []netip.Prefix, shape *allocator.Shape) (rows []rowMap) {
	for _, l := range d.leases {
		block, err := netip.ParsePrefix(l.Spec.Block)
		if err != nil || slices.ContainsFunc(ranges, block.Overlaps) {
			continue
		}
		rows = append(rows, d.row(rowOf(block.Addr()), block, shape, []*v1alpha1.IPLease{l}))
	}
	slices.SortFunc(rows, func(a, b rowMap) int { return netip.MustParseAddr(a.First).Compare(netip.MustParseAddr(b.First)) })
	return rows
}

// row draws what of a row is in a range.
func (d drawing) row(at, cidr netip.Prefix, shape *allocator.Shape, leases []*v1alpha1.IPLease) rowMap {
	if cidr.Bits() > at.Bits() {
		at = cidr
	}
	r := row{first: at.Addr(), cells: []byte(strings.Repeat(string(cellFree), 1<<(at.Addr().BitLen()-at.Bits())))}
	if shape != nil {
		for i, a := 0, r.first; i < len(r.cells); i, a = i+1, a.Next() {
			if shape.Assignable(a) != nil {
				r.cells[i] = cellNever
			}
		}
	}
	slices.SortFunc(leases, func(a, b *v1alpha1.IPLease) int { return cmp.Compare(a.Name, b.Name) })
	free := d.selects("", "")
	for _, l := range leases {
		block, err := netip.ParsePrefix(l.Spec.Block)
		if err != nil || !at.Overlaps(block) {
			continue
		}
		d.lease(&r, l, block)
	}
	for i, c := range r.cells {
		if c == cellFree && !free && (d.node == "" || !heldBy(r.Leases, i, d.node)) {
			r.cells[i] = ','
		}
	}
	r.First, r.Cells = r.first.String(), string(r.cells)
	return r.rowMap
}

// heldBy reports whether a node holds the address of an index.
func heldBy(leases []leaseMap, i int, node string) bool {
	return slices.ContainsFunc(leases, func(l leaseMap) bool { return l.Node == node && i >= l.At && i < l.At+l.Size })
}

// lease draws a lease.
func (d drawing) lease(r *row, l *v1alpha1.IPLease, block netip.Prefix) {
	at := max(0, r.index(block.Addr()))
	size := 1 << (block.Addr().BitLen() - block.Bits())
	node := l.Spec.Holder.Node
	r.Leases = append(r.Leases, leaseMap{At: at, Size: min(size, len(r.cells)-at), Node: node, Unreachable: d.known.OutOfReach(l)})
	if node != "" {
		d.nodes[node] = true
	}
	d.each(l, func(a netip.Addr, o owner) { d.mark(r, a, o) })
}

// cellOf returns the letter of what is granted to a kind of grantee.
func cellOf(kind v1alpha1.GranteeKind) byte {
	switch kind {
	case v1alpha1.GranteeClaim:
		return cellClaim
	case v1alpha1.GranteePod:
		return cellKept
	case v1alpha1.GranteeReservation:
		return cellReserved
	case v1alpha1.GranteeSubLease:
	}
	return cellRequest
}

// mark sets the letter of an address.
func (d drawing) mark(r *row, a netip.Addr, o owner) {
	i := r.index(a)
	if i < 0 || i >= len(r.cells) {
		return
	}
	if o.Namespace != "" {
		d.namespaces[o.Namespace] = true
	}
	if o.Node != "" {
		d.nodes[o.Node] = true
	}
	r.cells[i] = o.cell
	if !d.selects(o.Namespace, o.Node) {
		r.cells[i] -= 'a' - 'A'
	}
}

// index returns which cell an address of the row's /24 or /120 has; it is negative before the row.
func (r *row) index(a netip.Addr) int {
	if a.BitLen() != r.first.BitLen() || rowOf(a) != rowOf(r.first) {
		return -1
	}
	return int(a.As16()[15]) - int(r.first.As16()[15])
}

func sorted(set map[string]bool) []string {
	return append([]string{}, slices.Sorted(maps.Keys(set))...) // not null in JSON
}

// An owner is who has an address. Node and Namespace are empty where there is none.
type owner struct {
	cell byte
	state.Use
	to v1alpha1.Grantee // of what was granted
}

// each calls see with who has the addresses of a lease. Who comes last has an address: grants are
// the truth.
func (f facts) each(l *v1alpha1.IPLease, see func(netip.Addr, owner)) {
	for _, text := range l.Spec.Ceded {
		if a, err := netip.ParseAddr(text); err == nil {
			see(a, owner{cell: cellCeded, Use: state.Use{Node: l.Spec.Holder.Node}})
		}
	}
	for _, text := range l.Status.Allocations {
		if a, u, ok := state.ParseAllocation(text); ok {
			u.Node = l.Spec.Holder.Node
			see(a, owner{cell: cellPod, Use: u})
		}
	}
	for _, g := range l.Spec.Grants {
		a, err := netip.ParseAddr(g.Address)
		u, used := f.pods[g.To.UID]
		if !used {
			u = state.Use{Namespace: g.To.Namespace, Node: g.To.Node}
		}
		if err == nil {
			see(a, owner{cellOf(g.To.Kind), u, g.To})
		}
	}
}

// String says who it is, for people.
func (o owner) String() string {
	granted := o.to.Namespace + "/" + o.to.Name
	pod := fmt.Sprintf("pod %s/%s %s", o.Namespace, o.Pod, o.Interface)
	if o.ResourceClaim != "" {
		pod += ", by ResourceClaim " + o.ResourceClaim
	}
	switch o.cell {
	case cellCeded:
		return "nobody: ceded to the cluster"
	case cellReserved:
		return "reservation " + o.to.Name
	case cellKept:
		return "pod " + granted + ", by another IPAM"
	case cellRequest:
		if o.Pod == "" {
			return "request " + o.to.Name
		}
	case cellClaim:
		if o.Pod == "" {
			pod = "no pod now"
		}
		return "claim " + granted + ", " + pod
	}
	return pod
}

// owners lists who has the addresses of a row, in their order.
func owners(f facts, row netip.Prefix) []addressView {
	byAddr := map[netip.Addr]owner{}
	for _, l := range f.leases {
		if block, err := netip.ParsePrefix(l.Spec.Block); err == nil && row.Overlaps(block) {
			f.each(l, func(a netip.Addr, o owner) { byAddr[a] = o })
		}
	}
	all := make([]addressView, 0, len(byAddr))
	for _, a := range slices.SortedFunc(maps.Keys(byAddr), netip.Addr.Compare) {
		o := byAddr[a]
		all = append(all, addressView{Address: a.String(), Cell: string(o.cell), Owner: o.String(), Node: o.Node})
	}
	return all
}
