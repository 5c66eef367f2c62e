package looker

import (
	"slices"
	"strings"
	"time"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenure-ipam/tenure/ipam/foreign"
)

// names is what a watch has told of the definitions' names: from when on a definition's name can
// have been no other's.
type names struct {
	begun time.Time               // since when the watch is heard
	since map[types.UID]time.Time // of definitions that were seen made
	// gone has the last definition of a name that was seen to go; Changed is when.
	gone map[string]foreign.Definition
}

// heardWithin is how long after a definition was made the watch tells of it, with room for clocks
// that differ. If it takes longer the watch was interrupted, and may have missed another definition
// of the name.
const heardWithin = 10 * time.Second

// newNames returns what is known when a watch begins.
func newNames(now time.Time) names {
	return names{begun: now, since: map[types.UID]time.Time{}, gone: map[string]foreign.Definition{}}
}

// added notes a definition. First says that it was there when the watch began.
func (n *names) added(o *nad.NetworkAttachmentDefinition, first bool, now time.Time) {
	if first || now.Sub(o.CreationTimestamp.Time).Abs() > heardWithin {
		return
	}
	since := n.begun
	if gone := n.gone[o.Namespace+"/"+o.Name].Changed; gone.After(since) {
		since = gone
	}
	n.since[o.UID] = since
}

// removed notes that a definition is gone.
func (n *names) removed(o *nad.NetworkAttachmentDefinition, now time.Time) {
	delete(n.since, o.UID)
	d := foreign.ReadDefinition(o.Namespace, o.Name, o.Spec.Config, o.Annotations)
	d.Changed = now
	n.gone[d.String()] = d
}

// of returns from when on o's name can have been no other definition's, if o has never been written
// again. It is zero if that is not known.
func (n *names) of(o *nad.NetworkAttachmentDefinition) time.Time {
	if o.Generation != 1 {
		return time.Time{}
	}
	return n.since[o.UID]
}

// left returns the definitions that are gone, and forgets those by which no ADD can go on any more.
func (n *names) left(now time.Time) (gone []foreign.Definition) {
	for name, d := range n.gone {
		if now.Sub(d.Changed) > foreign.AddWithin {
			delete(n.gone, name)
			continue
		}
		gone = append(gone, d)
	}
	slices.SortFunc(gone, func(x, y foreign.Definition) int { return strings.Compare(x.String(), y.String()) })
	return gone
}
