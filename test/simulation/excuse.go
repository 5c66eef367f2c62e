package simulation

import (
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// excuse notes that a person took an object from under its holder: what rests on
// it rests on that person's word.
func (w *world) excuse(uid protocol.UID) {
	w.excused[uid] = true
	for _, n := range w.nodes {
		for k, a := range n.disk.atts {
			n.voided[k] = n.voided[k] || n.disk.restsOn(a, func(r protocol.Right) bool { return r.UID == uid })
		}
		for _, s := range n.sandboxes {
			for name, then := range s.under {
				s.void = s.void || then == uid || n.disk.rights[name].UID == uid
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
