package ports

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/api/vif"
	"github.com/tenure-ipam/tenure/ipam/controller/grants"
	"github.com/tenure-ipam/tenure/ipam/controller/neutron"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// sweepSoonest is how long after a sweep the next one comes at the earliest.
const sweepSoonest = 2 * time.Second

// sweepSoon has a sweep come early.
func (p *Ports) sweepSoon() {
	select {
	case p.sweeping <- struct{}{}:
	default:
	}
}

// sweeps compares Neutron's ports with the claims, until ctx ends.
func (p *Ports) sweeps(ctx context.Context) {
	var last findings
	for {
		found, err := p.sweep(ctx, last)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil: // what was seen before Neutron was away counts no more
			p.Log.WarnContext(ctx, "Neutron's ports are not compared with the claims", "error", err)
			last = findings{}
		default:
			last = found
		}
		wait := p.SweepEvery
		if len(last.orphans)+len(last.lost)+len(last.surplus) > 0 { // to be seen a second time
			wait = min(wait, 5*sweepSoonest)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-p.sweeping:
			timer.Reset(sweepSoonest)
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// findings are what one sweep has seen. Nothing is done about what was not seen twice: lists of
// two programs are never of one moment.
type findings struct {
	orphans map[protocol.UID]bool            // claims that are not there, and have ports
	lost    map[protocol.UID]grants.ClaimKey // claims that are there, and whose port is not as they were told
	surplus map[string]protocol.UID          // by ID, ports of claims that have been told of another
}

// sweep compares once. What it finds as last has found it, it has mended.
func (p *Ports) sweep(ctx context.Context, last findings) (found findings, err error) {
	nc, err := p.Connect(ctx)
	if err != nil {
		return found, nil //nolint:nilerr // pools say so
	}
	with, err := p.claimsWithPorts(ctx) // before the ports: a port is there before its claim says so
	if err != nil {
		return found, err
	}
	ours, err := p.list(ctx, nc)
	if err != nil {
		return found, err
	}
	found = compare(ours, with)
	p.noteLost(found, last, with)
	return found, errors.Join(p.noteSurplus(ctx, found, last, with), p.deleteOrphans(ctx, found, last))
}

// A claimWithPort is a claim that has been told of its port.
type claimWithPort struct {
	key   grants.ClaimKey
	addrs []netip.Addr
	port  vif.Port
}

// claimsWithPorts returns all claims, nil for those that have not been told of a port.
func (p *Ports) claimsWithPorts(ctx context.Context) (map[protocol.UID]*claimWithPort, error) {
	var list ipamclaims.IPAMClaimList
	if err := p.Cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list claims: %w", err)
	}
	all := map[protocol.UID]*claimWithPort{}
	for i := range list.Items {
		o := &list.Items[i]
		all[protocol.UID(o.UID)] = nil
		port, err := vif.ParsePort(o.Annotations[vif.AnnotationPort])
		if err != nil || port.ID == "" || len(o.Status.IPs) == 0 {
			continue
		}
		c := &claimWithPort{key: grants.ClaimKey{Namespace: o.Namespace, Name: o.Name}, port: port}
		for _, text := range o.Status.IPs {
			if ip, err := netip.ParsePrefix(text); err == nil {
				c.addrs = append(c.addrs, ip.Addr())
			}
		}
		all[protocol.UID(o.UID)] = c
	}
	return all, nil
}

// compare returns which claims have lost their port, or tell another, which ports have lost their
// claim, and which are too many: Neutron has made those after their asker had ceased to wait.
func compare(ours []neutron.Port, claims map[protocol.UID]*claimWithPort) findings {
	f := findings{orphans: map[protocol.UID]bool{}, lost: map[protocol.UID]grants.ClaimKey{}, surplus: map[string]protocol.UID{}}
	of := map[protocol.UID][]neutron.Port{}
	for _, port := range ours {
		uid := protocol.UID(port.Claim)
		of[uid] = append(of[uid], port)
		if _, there := claims[uid]; !there {
			f.orphans[uid] = true
		}
	}
	for uid, c := range claims {
		if c == nil {
			continue
		}
		if !slices.ContainsFunc(of[uid], c.has) {
			f.lost[uid] = c.key
		}
		if !slices.ContainsFunc(of[uid], func(port neutron.Port) bool { return port.ID == c.port.ID }) {
			continue
		}
		for _, port := range of[uid] {
			if port.ID != c.port.ID {
				f.surplus[port.ID] = uid
			}
		}
	}
	return f
}

// has reports whether a port is what the claim was told of, and has an address of each subnet that
// this says. Others may be of the network's other pools.
func (c *claimWithPort) has(p neutron.Port) bool {
	told := c.port.ID == p.ID && c.port.MAC == p.MAC.String() && c.port.Network == p.Network
	return told && !slices.ContainsFunc(c.port.Subnets, func(subnet string) bool {
		return !slices.ContainsFunc(p.Addresses, func(a neutron.FixedIP) bool {
			return a.Subnet == subnet && slices.Contains(c.addrs, a.Addr)
		})
	})
}

// noteLost notes the claims whose port has not been as they were told twice, and has them looked
// at. They count as such until they have been told of another.
func (p *Ports) noteLost(found, last findings, with map[protocol.UID]*claimWithPort) {
	p.mu.Lock()
	maps.DeleteFunc(p.lost, func(uid protocol.UID, _ bool) bool { return with[uid] == nil })
	var tell []grants.ClaimKey
	for uid, key := range found.lost {
		if _, twice := last.lost[uid]; twice {
			p.lost[uid] = true
			tell = append(tell, key)
		}
	}
	p.mu.Unlock()
	for _, key := range tell {
		p.Notify(key)
	}
}

// noteSurplus has the ports deleted that were too many twice, and are by what the API server says
// of their claim now. A claim that asks for its port decides itself which stays.
func (p *Ports) noteSurplus(ctx context.Context, found, last findings, with map[protocol.UID]*claimWithPort) error {
	for id, uid := range found.surplus {
		if last.surplus[id] != uid {
			continue
		}
		told, err := p.toldNow(ctx, uid, with[uid].key)
		switch {
		case err != nil:
			return err
		case told == "" || told == id:
			continue
		}
		p.mu.Lock()
		if p.entries[uid] == nil {
			p.surplus[id] = uid
			p.signal()
		}
		p.mu.Unlock()
	}
	return nil
}

// toldNow returns the ID of the port that a claim tells at the API server; empty: none, or the
// claim is gone.
func (p *Ports) toldNow(ctx context.Context, uid protocol.UID, key grants.ClaimKey) (string, error) {
	var o metav1.PartialObjectMetadata
	o.SetGroupVersionKind(ipamclaims.SchemeGroupVersion.WithKind("IPAMClaim"))
	err := kube.Call(ctx, func(ctx context.Context) error {
		return p.Live.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: key.Name}, &o)
	})
	switch {
	case apierrors.IsNotFound(err) || err == nil && protocol.UID(o.UID) != uid:
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read claim %s/%s: %w", key.Namespace, key.Name, err)
	}
	port, err := vif.ParsePort(o.Annotations[vif.AnnotationPort])
	if err != nil {
		return "", nil //nolint:nilerr // it is written anew
	}
	return port.ID, nil
}

// deleteOrphans has the ports deleted that had no claim twice: none by a live list, either, and
// nothing granted to it.
func (p *Ports) deleteOrphans(ctx context.Context, found, last findings) error {
	twice := maps.Clone(found.orphans)
	maps.DeleteFunc(twice, func(uid protocol.UID, _ bool) bool { return !last.orphans[uid] || len(p.Held(uid)) > 0 })
	if len(twice) == 0 {
		return nil
	}
	switch restored, err := p.restored(ctx); {
	case err != nil:
		return err
	case restored: // claims, and grants, may be about to be put back
		return nil
	}
	for more := ""; ; {
		list := metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(ipamclaims.SchemeGroupVersion.WithKind("IPAMClaimList"))
		err := kube.Call(ctx, func(ctx context.Context) error {
			return p.Live.List(ctx, &list, client.Limit(1000), client.Continue(more))
		})
		if err != nil {
			return fmt.Errorf("list claims: %w", err)
		}
		for i := range list.Items {
			delete(twice, protocol.UID(list.Items[i].UID))
		}
		if more = list.Continue; more == "" {
			break
		}
	}
	for uid := range twice {
		if len(p.Held(uid)) == 0 {
			p.Log.InfoContext(ctx, "a port has no claim", "claim", uid)
			p.Release(uid)
		}
	}
	return nil
}

// restored reports whether the API server's data went back, as far as a pool with a source knows.
func (p *Ports) restored(ctx context.Context) (bool, error) {
	var list v1alpha1.IPPoolList
	if err := p.Cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list pools: %w", err)
	}
	var names []protocol.PoolName
	for i := range list.Items {
		if list.Items[i].Spec.Source != nil {
			names = append(names, protocol.PoolName(list.Items[i].Name))
		}
	}
	return p.Restored(ctx, names...)
}
