package looker

import (
	"cmp"
	"slices"
	"strings"
	"time"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenure-ipam/tenure/ipam/foreign"
)

// names is what a watch has told of the definitions' names: since when only this definition can
// have had its name.
type names struct {
	begun time.Time               // since when the watch is heard
	since map[types.UID]time.Time // of definitions that were seen made
	// former has, by namespace and name, what definitions were until they went or were written
	// again, each content once.
	former map[string][]former
}

// former is what a definition was; Changed is until when.
type former struct {
	foreign.Definition
	config string
}

// mostFormer bounds what is remembered of one name. What was of more contents may have given any
// address.
const (
	mostFormer = 16
	anyAddress = `{"ipam":{"type":"` + foreign.TypeHostLocal + `"}}`
)

// heardWithin is how long after a definition was made the watch tells of it, with room for clocks
// that differ. If it takes longer the watch was interrupted, and may have missed another definition
// of the name.
const heardWithin = 10 * time.Second

// newNames returns what is known when a watch begins.
func newNames(now time.Time) names {
	return names{begun: now, since: map[types.UID]time.Time{}, former: map[string][]former{}}
}

// added notes a definition. First says that it was there when the watch began.
func (n *names) added(o *nad.NetworkAttachmentDefinition, first bool, now time.Time) {
	if first || now.Sub(o.CreationTimestamp.Time).Abs() > heardWithin {
		return
	}
	since := n.begun
	for _, f := range n.former[o.Namespace+"/"+o.Name] {
		if f.Changed.After(since) {
			since = f.Changed
		}
	}
	n.since[o.UID] = since
}

// removed notes that a definition is gone.
func (n *names) removed(o *nad.NetworkAttachmentDefinition, now time.Time) {
	delete(n.since, o.UID)
	n.note(o, now)
}

// edited notes that a definition was written again.
func (n *names) edited(was, is *nad.NetworkAttachmentDefinition, now time.Time) {
	if was.Spec.Config != is.Spec.Config {
		n.note(was, now)
	}
}

// note notes what a definition was until now.
func (n *names) note(o *nad.NetworkAttachmentDefinition, now time.Time) {
	f := former{foreign.ReadDefinition(o.Namespace, o.Name, o.Spec.Config, o.Annotations), o.Spec.Config}
	if f.IPAM == foreign.Type { // no other IPAM has given anything by it
		f.config = foreign.Type
	}
	name := f.String()
	all := slices.DeleteFunc(n.former[name], func(x former) bool { return x.config == f.config && x.Domain == f.Domain })
	if len(all) >= mostFormer {
		all, f = nil, former{foreign.ReadDefinition(o.Namespace, o.Name, anyAddress, nil), anyAddress}
	}
	f.Changed = now
	n.former[name] = append(all, f)
}

// of returns from when on o's name can have been no other definition's, if o has never been written
// again. It is zero if that is not known.
func (n *names) of(o *nad.NetworkAttachmentDefinition) time.Time {
	if o.Generation != 1 {
		return time.Time{}
	}
	return n.since[o.UID]
}

// lately returns what definitions were until a while ago, and forgets what no ADD can go by any
// more.
func (n *names) lately(now time.Time) (all []foreign.Definition) {
	for name, of := range n.former {
		n.former[name] = slices.DeleteFunc(of, func(f former) bool { return now.Sub(f.Changed) > foreign.AddWithin })
		if len(n.former[name]) == 0 {
			delete(n.former, name)
		}
		for _, f := range n.former[name] {
			all = append(all, f.Definition)
		}
	}
	slices.SortFunc(all, func(x, y foreign.Definition) int {
		return cmp.Or(strings.Compare(x.String(), y.String()), x.Changed.Compare(y.Changed))
	})
	return all
}
