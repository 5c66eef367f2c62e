// Package poolspec is where text becomes typed: the ranges of an IPPool, and
// the network configuration that a CNI plugin reads on stdin. Everything behind
// it works on [allocator.Shape], [allocator.View] and [Config], which cannot
// hold an address that does not parse.
//
// A configuration has one of three forms:
//
//   - named: "pool" or "pools" names IPPools of the cluster;
//   - whereabouts': "range", "ipRanges" and their companions;
//   - host-local's: "subnet", "ranges" and theirs.
//
// The last two describe addresses inline. They become an implicit pool, which is
// the union of what the configurations of its name describe (see [Unite]), and a
// view of that pool, which is what this one configuration may take.
//
// Every key is honoured, refused with what to do instead, or listed in
// [Config.Ignored]; docs/reference/configuration.md has the tables, and a test keeps them
// in step with the code. All faults of a text are reported at once, each as a
// [Fault] in an [errors.Join].
//
// The package is linked into a CNI plugin, whose start-up is measured: what it
// initialises is a few error values.
package poolspec
