package simulation

import (
	"maps"
	"slices"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// excuse notes that a person took an object from under its holder: what rests on
// it rests on that person's word.
func (w *world) excuse(uid protocol.UID) {
	w.excused[uid] = true
	for _, n := range w.nodes {
		for k, a := range n.disk.atts {
			for _, x := range a.addrs {
				if uid == n.disk.rights[a.under(x)].UID {
					n.voided[k] = true
				}
			}
		}
		for _, s := range n.sandboxes {
			for _, name := range slices.Sorted(maps.Keys(s.under)) {
				if s.under[name] == uid || n.disk.rights[name].UID == uid {
					s.void = true
				}
			}
		}
	}
}

// vouched notes that somebody vouches, by the rules, that a node runs nothing.
func (w *world) vouched(name protocol.NodeName) {
	w.voidGuests(name)
	for _, n := range w.nodes {
		if n.name != name {
			continue
		}
		for k := range n.disk.atts { // also those whose answer is still on its way
			n.voided[k] = true
		}
		for _, s := range n.sandboxes {
			s.void = s.void || len(s.addrs) > 0
		}
		n.forgetDevices()
	}
}
