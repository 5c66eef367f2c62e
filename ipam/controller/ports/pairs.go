package ports

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/controller/neutron"
	"github.com/tenure-ipam/tenure/ipam/controller/trigger"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// nodePortNotFound is the reason where a node has no port on the pool's network, as far as Neutron
// shows.
const nodePortNotFound neutron.Reason = "NodePortNotFound"

// Pairs keeps allowed address pairs on the ports of nodes that are virtual machines, for pools
// whose nodePorts say so: one for each address that a pod of the node has by a claim.
//
// A pair is known as ours by a port of ours with the same address and hardware address. So a
// port of ours is deleted after its pairs. Pairs of others stay as they are.
//
// The pool's status remembers that pairs are kept, so that they go when they are not to be kept any
// more.
type Pairs struct {
	Ports *Ports
	Write client.Client
}

// Setup has the manager run what keeps pairs.
func (r *Pairs) Setup(mgr ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).Named("neutron-pairs").
		For(&v1alpha1.IPPool{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.IPSubLease{}, handler.EnqueueRequestsFromMapFunc(r.ofUse)).
		WithOptions(trigger.Workers(1)).Complete(r)
	if err != nil {
		return fmt.Errorf("set up allowed address pairs: %w", err)
	}
	return nil
}

// ofUse maps a use of a claim to the pools with pairs.
func (r *Pairs) ofUse(ctx context.Context, o client.Object) (all []reconcile.Request) {
	if o.(*v1alpha1.IPSubLease).Spec.Use == nil {
		return nil
	}
	pools, err := r.Ports.poolsWithPairs(ctx)
	if err != nil {
		r.Ports.Log.ErrorContext(ctx, "pools cannot be listed", "error", err)
	}
	for _, pool := range pools {
		all = append(all, reconcile.Request{NamespacedName: types.NamespacedName{Name: pool.Name}})
	}
	return all
}

// Reconcile looks at the nodes' ports on one pool's network.
func (r *Pairs) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	p := r.Ports
	pool, err := p.pool(ctx, protocol.PoolName(req.Name))
	if err != nil {
		return reconcile.Result{}, err
	}
	name := protocol.PoolName(req.Name)
	if pool == nil || !withPairs(pool) {
		p.notePairs(name, Problem{})
		if pool != nil && pool.Spec.Source != nil && pool.Spec.Source.Neutron.NodePorts == v1alpha1.NodePortsPairs {
			return reconcile.Result{RequeueAfter: waitForUsers}, nil // no event tells when its network is known
		}
		return reconcile.Result{}, nil
	}
	keep := pool.Spec.Source.Neutron.NodePorts == v1alpha1.NodePortsPairs
	if keep && pool.Status.Neutron.NodePorts != v1alpha1.NodePortsPairs {
		if written, err := r.remember(ctx, pool, v1alpha1.NodePortsPairs); !written {
			return reconcile.Result{RequeueAfter: time.Second}, err
		}
	}
	nc, err := p.Connect(ctx)
	if err != nil {
		return reconcile.Result{RequeueAfter: p.SweepEvery}, nil //nolint:nilerr // the pool says so
	}
	_, bad, err := p.allow(ctx, nc, pool)
	p.notePairs(name, bad)
	if keep || err != nil || !bad.None() {
		return reconcile.Result{RequeueAfter: p.SweepEvery}, err
	}
	if written, err := r.remember(ctx, pool, v1alpha1.NodePortsUnmanaged); !written {
		return reconcile.Result{RequeueAfter: time.Second}, err
	}
	return reconcile.Result{}, nil
}

// remember writes into the pool's status whether nodes' ports may have pairs for it.
func (r *Pairs) remember(ctx context.Context, pool *v1alpha1.IPPool, n v1alpha1.NodePorts) (written bool, err error) {
	seen := kube.MetaOf(pool)
	fields := map[string]any{"status": map[string]any{"neutron": map[string]any{"nodePorts": n}}}
	revision, err := patchPool(ctx, r.Write, seen, fields, true)
	return revision != "", err
}

// notePairs notes why the nodes' ports are not as they should be.
func (p *Ports) notePairs(name protocol.PoolName, bad Problem) {
	p.mu.Lock()
	before := p.pairs[name]
	if p.pairs[name] = bad; bad.None() {
		delete(p.pairs, name)
	}
	p.mu.Unlock()
	if before.Reason != bad.Reason || before.Message != bad.Message {
		p.TellPool(name)
	}
}

// withPairs reports whether a pool has pairs kept, or may have some left, and its network is known.
func withPairs(pool *v1alpha1.IPPool) bool {
	return pool.Spec.Source != nil && pool.Status.Neutron != nil &&
		(pool.Spec.Source.Neutron.NodePorts == v1alpha1.NodePortsPairs || pool.Status.Neutron.NodePorts == v1alpha1.NodePortsPairs)
}

// poolsWithPairs returns the pools that have pairs kept, or may have some left.
func (p *Ports) poolsWithPairs(ctx context.Context) (all []v1alpha1.IPPool, err error) {
	var list v1alpha1.IPPoolList
	if err := p.Cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list pools: %w", err)
	}
	for i := range list.Items {
		if withPairs(&list.Items[i]) {
			all = append(all, list.Items[i])
		}
	}
	return all, nil
}

// allowAll has the nodes' ports of all pools with pairs be as they should be. Stuck are the claims
// of which pairs may be left on ports that Neutron refuses to change.
func (p *Ports) allowAll(ctx context.Context, nc Neutron) (stuck map[protocol.UID]bool, err error) {
	pools, err := p.poolsWithPairs(ctx)
	if err != nil {
		return nil, err
	}
	stuck = map[protocol.UID]bool{}
	var errs []error
	for i := range pools {
		of, bad, err := p.allow(ctx, nc, &pools[i])
		if err == nil && of == nil {
			err = errors.New(bad.Message)
		}
		maps.Copy(stuck, of)
		errs = append(errs, err)
	}
	return stuck, errors.Join(errs...)
}

// allow has the nodes' ports on a pool's network allow what their pods have, and nothing else of
// ours; of a pool that is to have no pairs, nothing of ours. The problem is why they do not. Stuck
// are the claims of which pairs may be left on ports that Neutron refuses to change; nil: nobody
// knows.
//
// One at a time does this. Else one would undo by an older list of uses what another has added.
func (p *Ports) allow(ctx context.Context, nc Neutron, pool *v1alpha1.IPPool) (stuck map[protocol.UID]bool, bad Problem, err error) {
	p.allowing.Lock()
	defer p.allowing.Unlock()
	nodes, err := p.servers(ctx)
	if err != nil {
		return nil, bad, err
	}
	network := pool.Status.Neutron.NetworkID
	going := p.beingDeleted() // before the list: who deletes a port that comes later waits for this look
	ours, err := nc.Ours(ctx, network)
	if err != nil {
		return nil, problemOf(err), nil
	}
	servers := make([]string, 0, len(nodes))
	for server := range nodes {
		servers = append(servers, server)
	}
	slices.Sort(servers)
	found, err := nc.PortsOfServers(ctx, network, servers)
	if err != nil {
		return nil, problemOf(err), nil
	}
	wanted := map[string][]neutron.Pair{} // after the ports: an earlier leader may have added a pair to these
	if pool.Spec.Source.Neutron.NodePorts == v1alpha1.NodePortsPairs {
		staying := slices.DeleteFunc(slices.Clone(ours), func(o neutron.Port) bool { return going[o.ID] })
		allowed := map[string][]neutron.Pair{}
		for _, port := range found {
			allowed[nodes[port.Server]] = append(allowed[nodes[port.Server]], port.Pairs...)
		}
		if wanted, err = p.inUse(ctx, pool, staying, allowed); err != nil {
			return nil, bad, err
		}
	}
	stuck = map[protocol.UID]bool{}
	with := map[string]bool{}
	for _, port := range found {
		node := nodes[port.Server]
		next := nextPairs(port.Pairs, wanted[node], func(pair neutron.Pair) bool {
			a, err := netip.ParseAddr(pair.Addr)
			return err == nil && inSubnets(a, pool) && isOurs(pair, ours)
		})
		with[node] = true
		if slices.Equal(next, port.Pairs) {
			continue
		}
		err := port.Doubt
		if err == nil {
			err = nc.SetPairs(ctx, port, next)
		}
		switch reasonOf(err) {
		case "":
			p.Log.InfoContext(ctx, "addresses allowed on the port of a node", "node", node, "port", port.ID, "pairs", len(next))
		case neutron.Changed:
			return nil, bad, err //nolint:wrapcheck // says what it is about; it is read again
		case neutron.Unavailable: // about the others as well, and somebody may wait for the lock
			return nil, problemOf(err), nil
		default: // the other nodes' ports are another thing
			if bad.None() {
				bad = problemOf(err)
			}
			for i, o := range ours {
				if slices.ContainsFunc(port.Pairs, func(pair neutron.Pair) bool { return isOurs(pair, ours[i:i+1]) }) {
					stuck[protocol.UID(o.Claim)] = true
				}
			}
		}
	}
	if !bad.None() {
		return stuck, bad, nil
	}
	maps.DeleteFunc(wanted, func(node string, _ []neutron.Pair) bool { return with[node] })
	return stuck, missing(wanted, network), nil
}

// beingDeleted returns the IDs of the ports that are too many and are being deleted.
func (p *Ports) beingDeleted() map[string]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	going := map[string]bool{}
	for id := range p.deleting {
		going[id] = true
	}
	return going
}

func reasonOf(err error) neutron.Reason {
	if err == nil {
		return ""
	}
	reason, _ := neutron.ReasonOf(err)
	return reason
}

// missing says which nodes need pairs and have no port for them.
func missing(wanted map[string][]neutron.Pair, network string) Problem {
	var without []string
	for node := range wanted {
		without = append(without, node)
	}
	if len(without) == 0 {
		return Problem{}
	}
	slices.Sort(without)
	return Problem{Reason: nodePortNotFound, Message: fmt.Sprintf(
		"nodes %s have no port on network %s that Neutron shows, and their pods' addresses are allowed nowhere: their spec.providerID must be openstack:///UUID of the machine, and a port of the machine on that network, of the project that other nodes' ports are of",
		strings.Join(without, ", "), network)}
}

// nextPairs returns what pairs are to be: those that are not ours as they are, and then those
// wanted.
func nextPairs(pairs, wanted []neutron.Pair, ours func(neutron.Pair) bool) (next []neutron.Pair) {
	for _, pair := range pairs {
		if !slices.Contains(wanted, pair) && ours(pair) {
			continue
		}
		next = append(next, pair)
	}
	for _, pair := range wanted {
		if !slices.Contains(next, pair) {
			next = append(next, pair)
		}
	}
	return next
}

// isOurs reports whether a pair is of one of our ports.
func isOurs(pair neutron.Pair, ours []neutron.Port) bool {
	return slices.ContainsFunc(ours, func(port neutron.Port) bool {
		return port.MAC.String() == pair.MAC && slices.ContainsFunc(port.Addresses, func(a neutron.FixedIP) bool { return a.Addr.String() == pair.Addr })
	})
}

// servers returns the names of the nodes that are virtual machines of OpenStack's, by UUID.
func (p *Ports) servers(ctx context.Context) (map[string]string, error) {
	var list corev1.NodeList
	if err := p.Cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	of := map[string]string{}
	for i := range list.Items {
		// openstack:///UUID, or openstack://REGION/UUID
		rest, ok := strings.CutPrefix(list.Items[i].Spec.ProviderID, "openstack://")
		if _, uuid, found := strings.Cut(rest, "/"); ok && found && uuid != "" {
			of[uuid] = list.Items[i].Name
		}
	}
	return of, nil
}

// inUse returns, by node, what its pods have of a pool by claims, as our ports on the network say.
// Allowed is what the ports of nodes that have some allow: what is in use stays allowed. More comes
// for pods that are there: see users.
func (p *Ports) inUse(ctx context.Context, pool *v1alpha1.IPPool, ours []neutron.Port, allowed map[string][]neutron.Pair) (map[string][]neutron.Pair, error) {
	var uses v1alpha1.IPSubLeaseList
	if err := p.Cache.List(ctx, &uses, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list uses: %w", err)
	}
	of, users := map[string][]neutron.Pair{}, users{
		cache: p.Cache, live: p.Live, on: map[string][]corev1.Pod{}, claims: map[v1alpha1.ClaimReference]*ipamclaims.IPAMClaim{},
	}
	for i := range uses.Items {
		use, node := uses.Items[i].Spec.Use, uses.Items[i].Spec.Node
		if use == nil {
			continue
		}
		pairs := pairsOf(use.Claim.UID, pool, ours)
		isNew := func(pair neutron.Pair) bool { return !slices.Contains(allowed[node], pair) }
		if _, withPort := allowed[node]; withPort && slices.ContainsFunc(pairs, isNew) {
			there, err := users.there(ctx, node, *use)
			if err != nil {
				return nil, err
			}
			if !there {
				pairs = slices.DeleteFunc(pairs, isNew)
			}
		}
		if len(pairs) > 0 {
			of[node] = append(of[node], pairs...)
		}
	}
	for _, pairs := range of { // the same for the same uses
		slices.SortFunc(pairs, func(a, b neutron.Pair) int { return strings.Compare(a.Addr, b.Addr) })
	}
	return of, nil
}

// pairsOf returns the pairs of a pool's addresses that a claim's ports have.
func pairsOf(claim string, pool *v1alpha1.IPPool, ours []neutron.Port) (all []neutron.Pair) {
	for _, port := range ours {
		for _, a := range port.Addresses {
			if port.Claim == claim && inSubnets(a.Addr, pool) {
				all = append(all, neutron.Pair{Addr: a.Addr.String(), MAC: port.MAC.String()})
			}
		}
	}
	return all
}

func inSubnets(a netip.Addr, pool *v1alpha1.IPPool) bool {
	return slices.ContainsFunc(pool.Status.Neutron.Subnets, func(s v1alpha1.NeutronSubnet) bool {
		cidr, err := netip.ParsePrefix(s.CIDR)
		return err == nil && cidr.Contains(a)
	})
}
