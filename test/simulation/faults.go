package simulation

import (
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// A Fault is a bug that a test switches on to see that the simulation finds it: a
// number of the list in docs/contributing/simulation.md.
type Fault string

// NoFault is none.
const NoFault Fault = ""

// A Bug is a deliberate fault and what is expected of it.
type Bug struct {
	Fault Fault
	// What says what the program does wrong.
	What string
	// Within is how many seeds, from 0 on, hold one that fails; 0: none is known.
	Within uint64
	// Finder is one of them. It is played first, since a search plays many thousands.
	Finder uint64
	// Breaks are the invariants that it may break first.
	Breaks []Invariant
	// In says which runs can show it; nil: all. The others are not played.
	In func(flavour) bool
}

// The runs that can show a fault.

func withLostStores(k flavour) bool { return k.losesStores }
func withRestores(k flavour) bool   { return k.handDeletes || k.restores }
func withSlowWrites(k flavour) bool { return k.slow }
func withSlowEdge(k flavour) bool   { return k.edge && k.slow }
func withConfirmed(k flavour) bool  { return k.confirmed }
func withTwins(k flavour) bool      { return k.twins }
func withUses(k flavour) bool       { return k.uses }
func withEdits(k flavour) bool      { return k.edits }
func withMoves(k flavour) bool      { return k.moves }
func withStops(k flavour) bool      { return k.stops && k.restores }
func withRacks(k flavour) bool      { return k.racks }
func withPerNode(k flavour) bool    { return k.perNode }
func withClaimRacks(k flavour) bool { return k.racks && k.uses }
func withDevices(k flavour) bool    { return k.devices }
func withForeign(k flavour) bool    { return k.foreign }
func withFills(k flavour) bool      { return k.fills }
func withTwoLeaders(k flavour) bool { return k.leaders && k.fills }

// Bugs returns all deliberate faults.
func Bugs() []Bug { return bugs }

var bugs = []Bug{
	{"M1", "a plain read brings back what was given away", 600, 17, []Invariant{I1}, nil},
	{"M2", "releasing in memory alone", 100, 1, []Invariant{I1}, nil},
	{"M3", "forget a lease when its delete has no answer, and take it for new if it is there", 0, 0, []Invariant{I1}, withSlowWrites},
	{"M4", "delete without a revision", 650, 46, []Invariant{I1}, nil},
	{"M5", "what exists in this node's name is this store's", 1500, 845, []Invariant{I1}, withTwins},
	{"M6", "adopt a lost store's leases as empty", 1000, 56, []Invariant{I1}, withLostStores},
	{"M7", "give addresses of a frozen lease", 4000, 362, []Invariant{I1}, withLostStores},
	{"M8", "do not notice a store that was put back", 400, 211, []Invariant{I1, I2}, withLostStores},
	{"M9", "answer before the disk has it", 100, 0, []Invariant{I2}, nil},
	{"M10", "cede in the API before the store has it", 200, 31, []Invariant{I1}, nil},
	{"M11", "take back by a write without an answer", 100000, 20070, []Invariant{I1, I3}, withSlowEdge},
	{"M12", "take back what has been granted", 15000, 2768, []Invariant{I1, I3}, withUses},
	{"M13", "delete a lease by its UID alone, whatever has been granted since", 100, 15, []Invariant{I1, I3}, nil},
	{"M14", "grant on an informer's copy", 500, 17, []Invariant{I1, I3}, withUses},
	{"M15", "tell grants apart by the claim's name", 600, 74, []Invariant{I1, I3}, withUses},
	{"M16", "free what an informer knows no use of", 5000, 1867, []Invariant{I1, I3}, withUses},
	{"M17", "take over what a cached Node says is gone", 400, 103, []Invariant{I1}, nil},
	{"M18", "take over before F", 400, 95, []Invariant{I1}, nil},
	{"M19", "F from the moment of the answer", 0, 0, []Invariant{I1}, withSlowWrites},
	{"M20", "ignore that the registration's term has ended", 2500, 436, []Invariant{I1}, nil},
	{"M21", "register at once where another machine is registered", 300, 16, []Invariant{I1}, withTwins},
	{"M22", "free grants before the status that does not name them is written", 4000, 653, []Invariant{I3}, withUses},
	{"M23", "write a claim's status by its name alone", 100, 73, []Invariant{I3, I4}, withUses},
	{"M24", "free what a cached claim does not want any more", 300, 5, []Invariant{I3}, withUses},
	{"M25", "free a claim's address without reading its uses", 600, 51, []Invariant{I3}, withUses},
	{"M26", "serve without a confirmation", 300, 86, []Invariant{I1, I3}, nil},
	{"M27", "take a claim's status for its leases", 300, 49, []Invariant{I1, I3}, withUses},
	{"M28", "delete the use at the first of two DELs", 1500, 83, []Invariant{I3}, withUses},
	{"M29", "a DEL frees whatever the pod has", 300, 2, []Invariant{I2}, nil},
	{"M30", "apply journalled DELs after a newer ADD", 800, 148, []Invariant{I2}, nil},
	{"M31", "take the address over while the old sandbox lives", 100, 1, []Invariant{I1, I2}, nil},
	{"M32", "collect garbage by the pod's object alone", 100, 1, []Invariant{I2}, nil},
	{"M33", "lease without a look at the pool afterwards", 25000, 4069, []Invariant{I1}, nil},
	{"M34", "name leases by the pool's ranges", 1000, 51, []Invariant{I1}, withEdits},
	{"M35", "take reserves whatever the pressure", 0, 0, []Invariant{I5}, withFills},
	{"M36", "recall from one holder alone", 30000, 261, []Invariant{I5}, withFills},
	{"M37", "keep part of what is wanted while the rest cannot be had", 300, 82, []Invariant{I4, I5}, withUses},
	{"M38", "write back leases without the marks, as a program does that does not know them", 50, 5, []Invariant{I4}, nil},
	{"M39", "own leases by their pool, so that the garbage collector deletes them", 600, 218, []Invariant{I1, I3}, withEdits},
	{"M40", "ignore that leases vanished, or that the API server went back", 600, 214, []Invariant{I1}, withRestores},
	{"M41", "bar freed addresses", 200, 11, []Invariant{I5}, withFills},
	{"M42", "never free what a DEL could not write", 100, 5, []Invariant{I4}, nil},
	{"M43", "a fencing write that changes nothing", 30000, 5707, []Invariant{I1}, withSlowWrites},
	{"M44", "serve after another boot without a registration", 500, 373, []Invariant{I1}, nil},
	{"M45", "ignore the term", 100, 19, []Invariant{I1}, nil},
	{"M46", "change the block size without closing", 600, 176, []Invariant{I1}, nil},
	{"M47", "siblings by their controller alone", 10000, 1648, []Invariant{I1}, withUses},
	{"M48", "take another machine's leases", 8000, 326, []Invariant{I1}, withTwins},
	{"M49", "give frozen rights back", 6000, 2, []Invariant{I1, I3}, withLostStores},
	{"M50", "no counter in /run", 400, 211, []Invariant{I1, I2}, withLostStores},
	{"M51", "F by a clock that jumps", 300, 96, []Invariant{I1}, nil},
	{"M52", "neither note nor list what is created", 200, 6, []Invariant{I4, I5}, nil},
	{"M53", "answer a request twice", 0, 0, []Invariant{I1}, withTwoLeaders},
	{"M54", "open a pool whatever others of its domain have leased", 16000, 2635, []Invariant{I1, I3}, withMoves},
	{"M55", "lease what an edit has brought before the controller has seen it", 10000, 204, []Invariant{I1, I3}, withMoves},
	{"M56", "take over what takes a person's word without it", 3000, 369, []Invariant{I1, I2}, withConfirmed},
	{"M57", "a GC frees all that it does not list", 400, 2, []Invariant{I1, I2}, nil},
	{"M58", "open a pool without a look at what pods have by another IPAM", 1000, 308, []Invariant{I1}, withForeign},
	{"M59", "look without a fence", 4000, 694, []Invariant{I1}, withForeign},
	{"M60", "look before the fence is in force", 14000, 2356, []Invariant{I1}, withForeign},
	{"M61", "free what is kept for a pod whose object is gone, although its sandbox runs", 30000, 4882, []Invariant{I1}, withForeign},
	{"M62", "give what an edit adds before a look", 2000, 157, []Invariant{I1}, withForeign},
	{"M63", "believe what a pod shows more than the record of another pod", 20000, 344, []Invariant{I1}, withForeign},
	{"M64", "wake nobody of several who wait", 1000, 13, []Invariant{I5}, nil},
	{"M65", "go by the pool as it was before an edit, when what the edit adds is recalled", 100000, 6802, []Invariant{I1}, withForeign},
	{"M66", "give addresses of every range, whatever nodes it selects", 100, 18, []Invariant{Place}, withRacks},
	{"M67", "grant claims addresses of every range, whatever nodes it selects", 3000, 1819, []Invariant{Place}, withClaimRacks},
	{"M68", "go by the first labels that a node was told", 200, 28, []Invariant{I4, I5}, withRacks},
	{"M69", "lease another subnet when the node's own is full", 200, 3, []Invariant{Subnet}, withPerNode},
	{"M70", "give a node's subnet back when it is idle", 200, 34, []Invariant{Subnet}, withPerNode},
	{"M71", "free a ResourceClaim's address while its pod's sandbox is there", 1000, 264, []Invariant{I2}, withDevices},
	{"M72", "keep a device's address until its ResourceClaim is gone", 1000, 282, []Invariant{I4, I5}, withDevices},
	{"M73", "change a pool's labels that were published to its readers", 20000, 2889, []Invariant{I4, I5}, withRacks},
	{"M74", "begin no epoch for a pool that has waited, and stays stopped", 1000, 117, []Invariant{I4}, withStops},
	{"M75", "change a closed pool's block size at once", 30000, 6802, []Invariant{I1}, withForeign},
}

// believed is what M27 takes for the lease of that name, of claims' addresses.
func (w *world) believed(name string) (protocol.Lease, protocol.Outcome, error) {
	pool, block, err := protocol.ParseLeaseName(name)
	must(err)
	l := protocol.Lease{Meta: protocol.Meta{Name: name}, Pool: pool, Block: block, Holder: protocol.Holder{Cluster: true}}
	for _, c := range w.api.claims.list(nil) {
		for _, ip := range c.IPs {
			if block.Contains(ip.Addr()) {
				l.Grants = append(l.Grants, protocol.Grant{Addr: ip.Addr(), To: protocol.Grantee{Kind: protocol.GranteeClaim, UID: c.UID}})
			}
		}
	}
	return l, protocol.Done, nil
}

// grantByName is M15: what is granted to a claim that is gone is granted to the next of
// its name.
func (w *world) grantByName(c simClaim) {
	if w.fault != "M15" || c.Network == "others" {
		return
	}
	for _, l := range w.api.leases.list(nil) {
		w.api.leases.update(l.Meta, func(l *protocol.Lease) {
			for i := range l.Grants {
				if to := &l.Grants[i].To; to.Kind == protocol.GranteeClaim && to.Name == c.Name {
					to.UID = c.UID
				}
			}
		})
	}
}

// collectLeases is the garbage collector, where leases are owned by their pool, which
// is gone.
func (w *world) collectLeases(pool simPool) {
	if w.fault != "M39" {
		return
	}
	for _, l := range w.api.leases.list(func(l protocol.Lease) bool { return l.PoolUID == pool.UID }) {
		w.api.leases.remove(protocol.Meta{Name: l.Name})
	}
}
