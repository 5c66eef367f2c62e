package looker

import (
	"context"
	"slices"
	"testing"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
)

// backwards is a cache that lists the other way round.
type backwards struct{ client.Reader }

func (b backwards) List(ctx context.Context, into client.ObjectList, opts ...client.ListOption) error {
	err := b.Reader.List(ctx, into, opts...)
	slices.Reverse(into.(*nad.NetworkAttachmentDefinitionList).Items)
	return err
}

// TestOrderOfDefinitions: a verdict does not depend on the order in which the cache has the
// definitions. It would pass for another one, and the pool's take-over would begin anew.
func TestOrderOfDefinitions(t *testing.T) {
	const theirs = `{"cniVersion":"1.0.0","name":"net","type":"macvlan","ipam":{"type":"whereabouts","range":"10.0.0.0/24"}}`
	c := newCluster()
	c.pools, c.more = []v1alpha1.IPPool{lan()}, []string{theirs, theirs}
	first := c.look(t)
	c.Cache = backwards{c}
	if next := c.look(t); len(first.Others) != 2 || !next.Same(first) {
		t.Errorf("the verdict was %+v, and is %+v, of the same definitions", first, next)
	}
}
