package soak_test

import (
	"context"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"slices"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// past is what the API server's data have been since they went back.
type past struct {
	restores int                     // how often they did
	pods     map[string]bool         // UIDs of the pods that were there then
	claims   map[string][]netip.Addr // the claims that were, and their addresses, by UID
	void     map[place]bool          // interfaces that lost what they had, at any time
}

// place is an interface on a node.
type place struct {
	node string
	key  store.Key
}

// took reports whether an interface, made after so many restores, has lost its pod by
// the next one, as the kubelet learns, or its addresses, as Events tell a person. Either
// way it is to be ended.
func (p *past) took(node string, i fleet.Interface, restores int) bool {
	gone := restores < p.restores && i.Pod != "" && !p.pods[i.PodUID]
	return gone || p.void[place{node, store.Key{Network: i.Network, ContainerID: i.Sandbox, IfName: i.IfName}}]
}

// lookBack takes up what the API server has after a restore, while no agent and no
// controller runs, and nobody calls. Pods that are there again, and that nobody runs any
// more, are deleted, as whoever made them does. before are the leases that there were, and silent
// the nodes that are off and that nobody vouches for.
func (w *world) lookBack(before []protocol.Lease, silent map[protocol.NodeName]bool) {
	p := &w.past
	p.restores++
	p.pods, p.claims = map[string]bool{}, map[string][]netip.Addr{}
	w.insist("list what was restored", func(ctx context.Context) error {
		var pods corev1.PodList
		if err := kc.List(ctx, &pods); err != nil {
			return err
		}
		for i := range pods.Items {
			o := &pods.Items[i]
			if _, runs := w.pods.Load(o.Name); runs {
				p.pods[string(o.UID)] = true
				continue
			}
			if err := client.IgnoreNotFound(kc.Delete(ctx, o, client.GracePeriodSeconds(0))); err != nil {
				return err
			}
			w.stats.count("pods that were there again")
		}
		var claims ipamclaims.IPAMClaimList
		if err := kc.List(ctx, &claims); err != nil {
			return err
		}
		for i := range claims.Items {
			c := kube.ClaimOf(&claims.Items[i])
			p.claims[string(c.UID)] = addrsOf(c.IPs)
		}
		leases, err := api.Leases(ctx)
		if err != nil {
			return err
		}
		lost := 0
		for _, l := range before {
			if !slices.ContainsFunc(leases, func(r protocol.Lease) bool { return r.UID == l.UID }) {
				lost++
			}
		}
		w.stats.add("leases that restores lost", lost)
		return w.voided(leases, silent)
	})
	w.fleet.Observer.Restored(p.claims)
}

// voided notes which interfaces have addresses that nobody can put back, by what the
// stores say and these leases: all that is excused of a restore. Others may be given
// them, and nothing is asked of such an interface any more.
func (w *world) voided(leases []protocol.Lease, silent map[protocol.NodeName]bool) error {
	for _, n := range w.nodes {
		err := n.view(func(tx *store.Tx) error {
			for a, err := range tx.Attachments() {
				if err != nil {
					return err
				}
				void, err := voids(tx, a, leases, silent)
				if err != nil {
					return err
				}
				if void {
					w.past.void[place{n.Name, a.Key}] = true
					w.fleet.Observer.Void(n.Name, a.Network, a.ContainerID, a.IfName)
					w.stats.count("addresses lost with the API server's data")
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// voids reports whether an attachment's addresses were granted after the backup, to a
// claim or a request, or belong again to a claim that had been deleted. What is
// granted of a block keeps all of it from a node that has leased it since, and so does a
// node that is silent; any other lease of which nothing is granted goes back in time.
func voids(tx *store.Tx, a store.Attachment, leases []protocol.Lease, silent map[protocol.NodeName]bool) (bool, error) {
	for _, x := range a.Addresses {
		name := a.Use
		if name == "" {
			name = x.Lease
		}
		right, _, err := tx.Right(name)
		if err != nil {
			return false, err
		}
		to := right.UID
		if a.Claim != nil {
			to = a.Claim.UID
		}
		granted, claimed := false, false
		for _, l := range leases {
			if l.Pool != x.Pool || !l.Block.Contains(x.Addr) {
				continue
			}
			claimed = claimed || l.UID != right.UID && (len(l.Grants) > 0 || silent[l.Holder.Node])
			for _, g := range l.Grants {
				granted = granted || g.Addr == x.Addr && g.To.UID == to
				claimed = claimed || g.To.Kind == protocol.GranteeClaim && g.Addr == x.Addr
			}
		}
		if a.Use != "" && !granted || a.Use == "" && claimed {
			return true, nil
		}
	}
	return false, nil
}

// view shows the store of a node whose agent does not run.
func (n *node) view(show func(*store.Tx) error) error {
	if _, err := os.Stat(n.Config().Store); errors.Is(err, fs.ErrNotExist) {
		return nil // it was lost, and must not be made here
	}
	st, err := store.Open(n.Config().Store, store.Options{})
	if err != nil {
		return err
	}
	return errors.Join(st.View(show), st.Close())
}

// runs reports whether a node is on.
func (f *faults) runs(n *node) bool {
	return !slices.ContainsFunc(f.off, func(a absence) bool { return a.n == n })
}
