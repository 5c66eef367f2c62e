package protocol

// FrozenLease returns the record of a lease that names a store which this machine
// has lost.
func FrozenLease(l Lease) Right {
	r := Right{Kind: RightLease, Name: l.Name, Phase: Frozen, Store: l.Store, LeaseRight: LeaseRight{Pool: l.Pool, PoolUID: l.PoolUID, Block: l.Block}}
	r.take(r.ObjectOf(l))
	return r
}

// FrozenSubLease returns the record of a sub-lease that names a store which this
// machine has lost.
func FrozenSubLease(s SubLease) Right {
	r := Right{Kind: RightUse, Name: s.Name, Phase: Frozen, Store: s.Store, SubLeaseRight: SubLeaseRight{Use: s.Use}}
	if s.Use != nil {
		r.take(r.ObjectOfUse(s))
		return r
	}
	r.Kind, r.Request = RightRequest, s.Request
	for _, g := range s.Granted {
		r.Addrs, r.Leases = append(r.Addrs, g.Addr), append(r.Leases, g.Lease)
	}
	r.take(r.ObjectOfRequest(s))
	return r
}
