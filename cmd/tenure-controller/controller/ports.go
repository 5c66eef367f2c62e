package controller

import (
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/tenure-ipam/tenure/claims"
	"github.com/tenure-ipam/tenure/ipam/controller/grants"
	"github.com/tenure-ipam/tenure/ipam/controller/pools"
	"github.com/tenure-ipam/tenure/ipam/controller/ports"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// following is what keeps pools as Neutron's subnets are, and has ports there for claims.
type following struct {
	ports    *ports.Ports
	follower *ports.Follower
	pairs    *ports.Pairs
	subnets  *ports.Subnets // nil where VIFs are not served
}

// ports returns what looks after pools with a source, and tells it to those of pools and of claims.
func (c *Controller) ports(mgr manager.Manager, direct client.Client, b *grants.Broker, ofPools *pools.Reconciler, ofClaims *claims.Reconciler, triggers *triggers) following {
	cloud := &ports.Cloud{File: c.cfg.NeutronClouds, Name: c.cfg.NeutronCloud, Live: direct}
	made := (&ports.Ports{
		Cache: mgr.GetCache(), Live: direct, Connect: cloud.Connect, Shapes: ofPools.Shapes, Held: b.Held, Restored: ofPools.Restored,
		Notify: func(key grants.ClaimKey) { triggers.claims.Fire(key.Namespace, key.Name) },
		TellPool: func(name protocol.PoolName) {
			triggers.subnets.Fire("", string(name))
			triggers.pool(name)
		},
		Metrics: ports.NewMetrics(), Log: c.log.With("part", "neutron"), Now: c.cfg.Now, SweepEvery: c.cfg.NeutronEvery,
	}).Init()
	ofPools.Stolen, ofClaims.Ports, ofClaims.Write = made.Stolen, made, direct
	f := following{ports: made, pairs: &ports.Pairs{Ports: made, Write: direct}}
	if c.cfg.VIFs {
		f.subnets = &ports.Subnets{
			Cache: mgr.GetCache(), Live: direct, Write: direct, Connect: cloud.Maker, Namespaces: c.cfg.NeutronSubnetNamespaces,
			Events: mgr.GetEventRecorder(name), Log: c.log.With("part", "neutron"), SweepEvery: c.cfg.NeutronEvery,
		}
	}
	f.follower = &ports.Follower{
		Cache: mgr.GetCache(), Write: direct, Connect: cloud.Connect, Trouble: made.Trouble, Events: mgr.GetEventRecorder(name),
		Log: c.log.With("part", "neutron"), Now: c.cfg.Now, Every: c.cfg.NeutronEvery,
	}
	return f
}

// setup has the manager run f.
func (f following) setup(mgr manager.Manager, triggers *triggers) error {
	if f.subnets != nil {
		if err := f.subnets.Setup(mgr); err != nil {
			return err //nolint:wrapcheck // says what it is about
		}
	}
	return errors.Join(mgr.Add(manager.RunnableFunc(f.ports.Run)), f.follower.Setup(mgr, &triggers.subnets), f.pairs.Setup(mgr))
}
