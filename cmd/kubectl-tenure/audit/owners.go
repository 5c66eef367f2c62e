package audit

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// owner is one who owns an address: key tells owners apart. Of one who is doubtful it is
// not known whether he has it any more. HostLocal is the node on which host-local may have given
// it to him, "" if it cannot have.
type owner struct {
	key, text string
	doubtful  bool
	hostLocal protocol.NodeName
}

// ownedBy notes that somebody owns an address.
func (l *look) ownedBy(at place, key, text string) { l.addOwner(at, owner{key: key, text: text}) }

// addOwner adds o to the owners of an address, once. o is doubtful only if all who name it are.
func (l *look) addOwner(at place, o owner) {
	i := slices.IndexFunc(l.owner[at], func(known owner) bool { return known.key == o.key })
	if i < 0 {
		l.owner[at] = append(l.owner[at], o)
		return
	}
	known := &l.owner[at][i]
	known.doubtful = known.doubtful && o.doubtful
	known.hostLocal = cmp.Or(known.hostLocal, o.hostLocal)
}

// ofEachNode reports whether host-local may have given an address to all of its owners, each on
// another node: it knows nothing of other nodes.
func ofEachNode(owners []owner) bool {
	nodes := map[protocol.NodeName]bool{}
	for _, o := range owners {
		nodes[o.hostLocal] = true
	}
	return !nodes[""] && len(nodes) == len(owners)
}

// doubtful reports whether what a node's pods say may be of an earlier time: nobody on
// that node can take it back, or has been heard of to say that it still runs them.
func (l *look) doubtful(node protocol.NodeName) bool {
	reg, registered := l.Registrations[node]
	return l.Nodes[node].UID == "" || l.NotReady[node] ||
		registered && (reg.Ended() || reg.Fence > 0 && l.Now.Sub(reg.Beat) >= reg.Fence)
}

// ofNode is what helps where a doubtful node's pods say something.
const ofNode = "if the node's machine is off: kubectl tenure release-node, and delete its pods; if it runs, mend its kubelet and its tenured, and look again"

// owners finds addresses with several.
func (l *look) owners() {
	for at, owners := range l.owner {
		if len(owners) < 2 {
			continue
		}
		var texts, keys []string
		sure := 0
		for _, o := range owners {
			texts, keys = append(texts, o.text), append(keys, o.key)
			if !o.doubtful {
				sure++
			}
		}
		slices.Sort(texts)
		slices.Sort(keys)
		what, add, remedy := "it belongs to "+strings.Join(texts, " and to "), l.add, "delete the pods that have it now, and report this: it must never happen"
		if slices.ContainsFunc(keys, func(key string) bool { return strings.HasPrefix(key, foreignKey("")) }) {
			remedy = "another IPAM gave it too, beside Tenure or before the range was taken over: delete one of the pods, and see the pool's condition ForeignIPAM"
		}
		switch {
		case ofEachNode(owners):
			what += ": host-local gives the same addresses on every node"
			add, remedy = l.note, "if each node has a network of its own, such as a bridge, no pod has to be deleted, but the network needs no pool: write its definitions for host-local again; if the nodes share one wire, delete one of the pods"
		case sure < 2:
			add, remedy = l.note, ofNode
		}
		add(TwoOwners, "ippool "+string(at.pool), at, what, remedy)
		l.about(strings.Join(keys, ", "))
	}
}
