package networks

import (
	"context"
	"fmt"
	"slices"
	"sync"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/ipam/poolspec"
)

// Indices of definitions in a cache.
const (
	byName = "tenure.network" // the CNI network's name
	byPool = "tenure.pool"    // implicit pools that it describes; DefaultDomain, where it does not tell
	byUse  = "tenure.uses"    // pools that it gets addresses of, implicit ones as well, where it tells
)

// A Catalog finds networks among the definitions in a cache. Its methods may be
// called concurrently.
type Catalog struct {
	cache client.Reader
	// domain returns the pools of [poolspec.DefaultDomain], the oldest first.
	domain func(context.Context) ([]poolspec.DomainPool, error)
	// labels returns those of a namespace.
	labels func(ctx context.Context, namespace string) (map[string]string, error)
	// known keeps what was read of each definition, by UID: a name is resolved
	// for every claim, a definition changes rarely.
	known sync.Map // types.UID -> entry
}

type entry struct {
	revision string
	network  Network
}

// NewCatalog returns a Catalog over a cache that [Catalog.Index] has prepared. Domain returns the
// pools of [poolspec.DefaultDomain], the oldest first, and labels those of a namespace.
func NewCatalog(cache client.Reader, domain func(context.Context) ([]poolspec.DomainPool, error),
	labels func(ctx context.Context, namespace string) (map[string]string, error),
) *Catalog {
	return &Catalog{cache: cache, domain: domain, labels: labels}
}

// Index adds the indices that the Catalog needs. Call it before the cache starts.
func (c *Catalog) Index(ctx context.Context, to client.FieldIndexer) error {
	for field, of := range map[string]func(Network) []string{
		byName: func(n Network) []string { return []string{n.Name} },
		byPool: func(n Network) []string { return sortedPools(n) },
		byUse:  Network.Pools,
	} {
		err := to.IndexField(ctx, &nad.NetworkAttachmentDefinition{}, field, func(o client.Object) []string {
			return of(c.Of(o.(*nad.NetworkAttachmentDefinition)))
		})
		if err != nil {
			return fmt.Errorf("index network attachment definitions: %w", err)
		}
	}
	return nil
}

func sortedPools(n Network) []string {
	var names []string
	for name := range n.ImplicitPools() {
		names = append(names, name)
	}
	if n.Unnamed() {
		names = []string{poolspec.DefaultDomain}
	}
	slices.Sort(names)
	return names
}

// Of reads a definition, if that version of it has not been read before.
func (c *Catalog) Of(o *nad.NetworkAttachmentDefinition) Network {
	if e, ok := c.known.Load(o.UID); ok && e.(entry).revision == o.ResourceVersion {
		return e.(entry).network
	}
	n := Read(o.Namespace, o.Name, o.CreationTimestamp.Time, o.Spec.Config)
	c.known.Store(o.UID, entry{o.ResourceVersion, n})
	return n
}

// Last reads a definition that was deleted, and keeps nothing of it.
func (c *Catalog) Last(o *nad.NetworkAttachmentDefinition) Network {
	n := c.Of(o)
	c.known.Delete(o.UID)
	return n
}

// Resolve decides what a network's name means to a claim in namespace.
func (c *Catalog) Resolve(ctx context.Context, name, namespace string) (Resolution, error) {
	named, err := c.find(ctx, byName, name)
	if err == nil {
		named, err = c.place(ctx, named)
	}
	if err != nil {
		return Resolution{}, err
	}
	found := Resolve(named, namespace)
	if found.Verdict != Known {
		return found, nil
	}
	if found.Network, err = c.ofNamespace(ctx, found.Network, namespace); err != nil {
		return Resolution{}, err
	}
	if n := found.Network; n.Fault != "" {
		return Resolution{Verdict: Faulty, Message: fmt.Sprintf("network attachment definition %s: %s", n, n.Fault)}, nil
	}
	return found, nil
}

// ofNamespace finds the pools of n that labels of a namespace name.
func (c *Catalog) ofNamespace(ctx context.Context, n Network, namespace string) (Network, error) {
	if !n.ByNamespace() {
		return n, nil
	}
	labels, err := c.labels(ctx, namespace)
	return n.OfNamespace(namespace, labels), err
}

// OfPool returns the networks that describe an implicit pool inline, oldest
// first: those that name it, and those that have their ranges of it.
func (c *Catalog) OfPool(ctx context.Context, pool string) ([]Network, error) {
	describing, err := c.Naming(ctx, pool)
	if err != nil {
		return nil, err
	}
	placed, err := c.placedIn(ctx, pool)
	describing = append(describing, placed...)
	slices.SortFunc(describing, Network.Older)
	return describing, err
}

// placedIn returns the networks that describe ranges without a name, and have them of a pool.
func (c *Catalog) placedIn(ctx context.Context, pool string) (placed []Network, err error) {
	pools, err := c.DomainPools(ctx)
	i := slices.IndexFunc(pools, func(p poolspec.DomainPool) bool { return p.Name == pool })
	if err != nil || i < 0 {
		return nil, err
	}
	unnamed, err := c.Unnamed(ctx)
	if err != nil {
		return nil, err
	}
	for _, n := range unnamed {
		if !pools[i].Touches(poolspec.UnnamedCIDRs(n.Sources)) {
			continue
		}
		if n = n.Place(pools); n.Unnamed() && n.ImplicitPools()[pool].Ranges != nil {
			placed = append(placed, n)
		}
	}
	return placed, nil
}

// Naming returns the networks that describe ranges of a pool, and name the pool.
func (c *Catalog) Naming(ctx context.Context, pool string) ([]Network, error) {
	all, err := c.find(ctx, byPool, pool)
	return slices.DeleteFunc(all, Network.Unnamed), err
}

// Using returns the networks that get addresses of a pool, oldest first.
func (c *Catalog) Using(ctx context.Context, pool string) ([]Network, error) {
	using, err := c.find(ctx, byUse, pool)
	if err != nil {
		return nil, err
	}
	placed, err := c.placedIn(ctx, pool)
	using = append(slices.DeleteFunc(using, Network.Unnamed), placed...)
	slices.SortFunc(using, Network.Older)
	return using, err
}

func (c *Catalog) find(ctx context.Context, field, value string) ([]Network, error) {
	var list nad.NetworkAttachmentDefinitionList
	// Nothing of the list is changed: it may share memory with the cache.
	opts := []client.ListOption{client.MatchingFields{field: value}, client.UnsafeDisableDeepCopy}
	if err := c.cache.List(ctx, &list, opts...); err != nil {
		return nil, fmt.Errorf("find network attachment definitions: %w", err)
	}
	found := make([]Network, len(list.Items))
	for i := range list.Items {
		found[i] = c.Of(&list.Items[i])
	}
	return found, nil
}
