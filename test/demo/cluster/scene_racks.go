package main

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
)

// The network that spans two racks.
const (
	fabricName  = "fabric"
	fabricClaim = "queue.fabric"
	fabric      = `apiVersion: tenure.dev/v1alpha1
kind: IPPool
metadata: {name: fabric}
spec:
  ranges:
  - {cidr: 10.81.0.0/24, gateway: 10.81.0.1, nodeSelector: {matchLabels: {rack: a}}}
  - {cidr: 10.82.0.0/24, gateway: 10.82.0.1, nodeSelector: {matchLabels: {rack: b}}}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: fabric, namespace: shop}
spec:
  config: |
    {"cniVersion": "1.0.0", "name": "fabric", "type": "bridge", "bridge": "br-fabric",
     "ipam": {"type": "tenure", "pool": "fabric"}}
`
)

func (d *demo) playRacks(ctx context.Context) {
	d.kubectl(ctx, "label", "nodes", d.nodeA.name, "rack=a")
	d.kubectl(ctx, "label", "nodes", d.nodeB.name, "rack=b")
	d.Must(os.WriteFile(filepath.Join(workDir, "fabric.yaml"), []byte(fabric), 0o600))
	d.kubectl(ctx, "create", "-f", "fabric.yaml")
	_, ranges, _ := strings.Cut(fabric, "ranges:\n")
	ranges, _, _ = strings.Cut(ranges, "---")
	d.Block(ranges)
	d.awaitOpen(ctx, fabricName)

	a := d.run(ctx, d.nodeA, "leaf-1", selections{{Name: fabricName}})
	b := d.run(ctx, d.nodeB, "leaf-2", selections{{Name: fabricName}})
	d.showPods(a, b)
	for p, want := range map[*pod]string{a: "10.81.0.0/24", b: "10.82.0.0/24"} {
		if len(p.addrs) != 1 || p.addrs[0].Masked() != netip.MustParsePrefix(want) {
			d.Fail("%s on %s has %v; want an address of %s", p.name, p.node.name, p.addrs, want)
		}
	}
	d.OK("Each pod has an address of its node's rack.")

	ofClaim := selections{{Name: fabricName, Claim: fabricClaim}}
	d.Must(d.Client.Create(ctx, &ipamclaims.IPAMClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fabricClaim}, Spec: ipamclaims.IPAMClaimSpec{Network: fabricName},
	}))
	queue := d.run(ctx, d.nodeB, "queue", ofClaim)
	c := d.awaitClaim(ctx, fabricClaim)
	d.check(ctx, c, queue)
	d.showPods(queue)
	d.remove(ctx, queue)
	d.awaitUsedBy(ctx, c)
	again := d.create(ctx, d.nodeA, "queue", ofClaim)
	d.refuse(ctx, again, "10.82.0.", "rack=b", "rack=a")
	d.OK("A claim's address is of the rack where its first pod ran. Nodes of another rack refuse its pods, and say why.")
	d.forget(ctx, again)
	d.endRacks(ctx, c, a, b)
}

// endRacks deletes what the scene has made.
func (d *demo) endRacks(ctx context.Context, c claimed, pods ...*pod) {
	for _, p := range pods {
		d.remove(ctx, p)
	}
	pool := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: fabricName}}
	network := &nad.NetworkAttachmentDefinition{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fabricName}}
	d.Must(errors.Join(d.Client.Delete(ctx, c.object), d.Client.Delete(ctx, network), d.Client.Delete(ctx, pool)))
	d.Await(ctx, "the pool is gone", func(ctx context.Context) error {
		err := d.Client.Get(ctx, clientKey(pool), pool)
		if err == nil {
			return errors.New("it is there")
		}
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}
