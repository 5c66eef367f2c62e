package main

import (
	"context"
	"fmt"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// The one pool and the one network of the demo.
const (
	poolName    = "lan"
	networkName = "lan"
	gateway     = "10.77.0.1"
	staticRange = "10.77.200.0/24"
)

const networkConfig = `{
  "cniVersion": "1.0.0",
  "name": "lan",
  "allowPersistentIPs": true,
  "plugins": [{
    "type": "bridge", "bridge": "br-lan",
    "capabilities": {"ips": true, "mac": true},
    "ipam": {"type": "tenure", "pool": "lan"}
  }]
}`

func (d *demo) playPool(ctx context.Context) {
	pool := &v1alpha1.IPPool{
		ObjectMeta: metav1.ObjectMeta{Name: poolName},
		Spec: v1alpha1.IPPoolSpec{Ranges: []v1alpha1.Range{
			{CIDR: "10.77.0.0/16", Gateway: gateway, StaticOnly: []string{staticRange}},
			{CIDR: "fd00:77::/112"},
		}},
	}
	network := &nad.NetworkAttachmentDefinition{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: networkName},
		Spec:       nad.NetworkAttachmentDefinitionSpec{Config: networkConfig},
	}
	d.Must(d.Client.Create(ctx, pool))
	d.Must(d.Client.Create(ctx, network))
	d.kubectl(ctx, "-n", namespace, "get", "network-attachment-definition", networkName, "-o", "jsonpath={.spec.config}")

	opened := d.awaitOpen(ctx, poolName)
	d.showPool(ctx)
	if opened.Bits4 != 26 || opened.Bits6 != 122 {
		d.Fail("blocks are /%d and /%d; want /26 and /122", opened.Bits4, opened.Bits6)
	}
	d.OK("The pool is open. Nodes lease blocks of 64 addresses: a /%d and a /%d at a time.", opened.Bits4, opened.Bits6)
}

// awaitOpen waits until the controller has opened a pool.
func (d *demo) awaitOpen(ctx context.Context, name protocol.PoolName) (opened protocol.Pool) {
	d.Await(ctx, "the controller opens the pool", func(ctx context.Context) error {
		p, out, err := d.API.ReadPool(ctx, name)
		if out != protocol.Done {
			return err
		}
		opened = p
		if !p.Open {
			return fmt.Errorf("pool %s is closed", name)
		}
		return nil
	})
	return opened
}
