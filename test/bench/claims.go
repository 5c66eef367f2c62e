package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/test/process"
)

// Sizes of the measurement of claims.
const (
	claimRounds   = 3
	claimsAtOnce  = 2000
	claimPatience = 20 * time.Minute
)

// claimNetwork makes the network of claims and its pool, if they are not there.
func (n *node) claimNetwork(ctx context.Context) {
	n.openPool(ctx, claimsName, claimsRange)
	n.Must(client.IgnoreAlreadyExists(n.Client.Create(ctx, &nad.NetworkAttachmentDefinition{
		ObjectMeta: metav1.ObjectMeta{Namespace: podNamespace, Name: claimsName},
		Spec: nad.NetworkAttachmentDefinitionSpec{Config: fmt.Sprintf(
			`{"cniVersion":"1.1.0","name":%q,"type":"bridge","allowPersistentIPs":true,"ipam":{"type":"tenure","pool":%[1]q}}`, claimsName)},
	})))
}

// makeClaims makes claims on the network of claims.
func (n *node) makeClaims(ctx context.Context, name func(i int) string, count int) {
	n.createAll(ctx, count, func(i int) client.Object {
		return &ipamclaims.IPAMClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: podNamespace, Name: name(i)},
			Spec:       ipamclaims.IPAMClaimSpec{Network: claimsName, Interface: firstInterface},
		}
	}, nil)
}

// allocated waits until so many claims have addresses, and returns one of them.
func (n *node) allocated(ctx context.Context, count int) (one *ipamclaims.IPAMClaim) {
	ctx, cancel := context.WithTimeout(ctx, claimPatience)
	defer cancel()
	has := map[string]bool{}
	err := n.AwaitClaims(ctx, podNamespace, func(c *ipamclaims.IPAMClaim) bool {
		if len(c.Status.IPs) > 0 {
			has[c.Name], one = true, c
		}
		return len(has) >= count
	})
	if err != nil {
		n.Fail("%d of %d claims have an address: %w", len(has), count, err)
	}
	return one
}

// claims measures how many claims a second get their addresses, where all are there at
// once, and how many status updates of the same size the API server takes.
func (b *bench) claims(ctx context.Context) {
	b.node.claimNetwork(ctx)
	count := b.samples(claimsAtOnce)
	var served, raw []float64
	for round := range claimRounds {
		s, r := b.claimRound(ctx, fmt.Sprintf("round-%d", round), count)
		served, raw = append(served, float64(count)/s.Seconds()), append(raw, float64(count)/r.Seconds())
	}
	b.report.claims(count, served, raw)
}

// claimRound returns how long the controller takes for so many claims, and how long as
// many status updates take without it.
func (b *bench) claimRound(ctx context.Context, prefix string, count int) (served, raw time.Duration) {
	name := func(i int) string { return fmt.Sprintf("%s-%d", prefix, i) }
	// The controller is paused while the claims are made, which takes longer than to
	// serve them.
	b.Must(b.node.controller.Pause())
	b.node.makeClaims(ctx, name, count)
	b.Must(b.node.controller.Resume())
	began := time.Now()
	one := b.node.allocated(ctx, count)
	served = time.Since(began)
	b.Must(b.node.controller.Stop())
	began = time.Now()
	b.node.updateAll(ctx, name, count, one.Status)
	raw = time.Since(began)
	b.Must(b.node.controller.Start(ctx))
	b.node.noClaims(ctx)
	return served, raw
}

// updateAll writes a status to so many claims, another one than they have.
func (n *node) updateAll(ctx context.Context, name func(i int) string, count int, status ipamclaims.IPAMClaimStatus) {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(writers)
	for i := range count {
		g.Go(func() error {
			c := &ipamclaims.IPAMClaim{ObjectMeta: metav1.ObjectMeta{Namespace: podNamespace, Name: name(i)}}
			patch := client.MergeFrom(c.DeepCopy())
			status.DeepCopyInto(&c.Status)
			for j := range c.Status.Conditions {
				c.Status.Conditions[j].LastTransitionTime = metav1.NewTime(c.Status.Conditions[j].LastTransitionTime.Add(-time.Hour))
			}
			return n.Client.Status().Patch(ctx, c, patch)
		})
	}
	n.Must(g.Wait())
}

// noClaims deletes all claims and waits until the controller has let go of them.
func (n *node) noClaims(ctx context.Context) {
	n.Must(process.Await(ctx, process.Patience, func(ctx context.Context) error {
		// Of very many the API server's time ends before the last: the next call goes on.
		if err := n.Client.DeleteAllOf(ctx, &ipamclaims.IPAMClaim{}, client.InNamespace(podNamespace)); err != nil {
			return err
		}
		var left metav1.PartialObjectMetadataList
		left.SetGroupVersionKind(ipamclaims.SchemeGroupVersion.WithKind("IPAMClaimList"))
		if err := n.Client.List(ctx, &left, client.InNamespace(podNamespace), client.Limit(1)); err != nil {
			return err
		}
		if len(left.Items) > 0 {
			return errors.New("claims that were deleted are still there")
		}
		return nil
	}))
}
