package simulation

// flavour is what happens in a run besides crashes, lost answers and late
// writes. Who deletes a registration whose terms a lost store alone remembers is outside
// the fault model: these two are not mixed.
type flavour struct {
	handDeletes bool // people delete leases, uses and registrations
	resizes     bool // the controller changes the pool's block size
	losesStores bool // a node comes back with an empty disk
	twins       bool // two machines have one node name
	uses        bool // claims are made, used and freed
	handWrites  bool // somebody writes into claims' status
	edits       bool // people edit pools, delete them and make them again
	moves       bool // and move ranges between them
	stops       bool // and stop them, and start them again
	fills       bool // in the end pods come until the nodes' pool is full
	narrow      bool // the nodes' pool has few addresses
	restores    bool // the API server's data go back to a snapshot
	slow        bool // the API server reads well, and takes long over writes: few are waited for
	edge        bool // claims of the nodes' pool, which has few addresses, come and go
	leaders     bool // two controllers lead, after an election that went wrong
	confirmed   bool // of the dead only what somebody vouches for may be taken
	foreign     bool // another IPAM gives addresses, and the cluster moves from it to Tenure
	rests       bool // pools have a reuseAfter
	never       bool // F is 0 on all nodes: silence alone says nothing, ever
	racks       bool // the ranges of the nodes' pool are for the nodes of two racks
	perNode     bool // the nodes' pool gives each node a subnet
	devices     bool // pods have devices by ResourceClaims
}

// choose decides what happens in the run, and how often.
func (w *world) choose() {
	switch w.rng.IntN(3) {
	case 0:
		w.kind.handDeletes = true
	case 1:
		w.kind.losesStores = true
	}
	w.kind.resizes = w.one(3)
	w.trouble, w.patience = 15+w.rng.IntN(150), 8+w.rng.IntN(60)
	w.delay = 1 + w.rng.IntN(5)
	w.haste = 10 + w.rng.IntN(40)
	w.kind.twins = w.one(8)
	w.kind.uses = w.one(2)
	w.kind.handWrites = w.kind.uses && w.one(3)
	w.kind.edits = w.one(3)
	w.kind.moves = w.kind.edits && w.one(3)
	w.kind.fills = w.one(2)
	w.kind.narrow = w.one(3)
	w.kind.leaders = w.one(2)
	w.kind.slow = w.one(4)
	if w.one(6) {
		w.kind.edge, w.kind.uses, w.kind.slow = true, true, w.one(2)
		w.trouble += 300
		w.kind.narrow, w.kind.resizes, w.kind.edits, w.kind.moves = false, false, false, false
	}
	w.kind.confirmed = !w.kind.twins && !w.kind.losesStores && !w.kind.edits && w.one(3)
	switch k := w.kind; { // without a choice of its own, as below, where it came later
	case k.twins, k.losesStores: // few, and not those by which M49 is found
		w.kind.restores = w.haste%8 == 1
	case k.edits:
		w.kind.restores = w.haste%2 == 0
	case k.handDeletes:
		w.kind.restores = w.haste%4 == 0
	case k.uses:
		w.kind.restores = w.haste%3 == 0
	default:
		w.kind.restores = w.one(2)
	}
	// Where the nodes' agents cannot be asked, what another IPAM has given cannot be found.
	k := w.kind
	w.kind.foreign = !k.twins && !k.losesStores && !k.handDeletes && !k.edge && !k.moves && !k.restores && w.trouble%2 == 0
	// No choice of its own, so that the other runs stay what they were. A machine that waits
	// for another to be silent would wait for ever.
	w.kind.rests = w.fault == NoFault && w.patience%5 == 2
	w.kind.never = !w.kind.twins && (w.patience%6 == 0 || w.kind.restores && w.patience%3 == 0)
	w.kind.racks = !w.kind.foreign && !w.kind.moves && w.delay == 1 // likewise
	w.kind.perNode = !w.kind.foreign && !w.kind.moves && !w.kind.edge && w.delay == 2 && w.trouble%4 != 2
	w.kind.stops = w.kind.edits && !w.kind.foreign && w.haste%3 == 1 && (w.fault == NoFault || w.fault == "M74")
	w.kind.devices = !w.kind.foreign && w.patience%4 == 1 && (w.fault == NoFault || w.fault == "M71" || w.fault == "M72")
}

// kindOf returns the flavour of the run of a seed.
func kindOf(seed uint64) flavour {
	w := &world{rng: newChoices(seed, false)}
	w.rng.begin()
	w.choose()
	return w.kind
}
