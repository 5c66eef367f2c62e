package daemon

import (
	"slices"
	"time"

	"github.com/tenure-ipam/tenure/ipam/history"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// A recorder writes down what the store commits.
type recorder struct{ history.Recorder }

func (d *Daemon) recorder() *recorder {
	return &recorder{history.Recorder{Dir: d.cfg.History, Node: string(d.cfg.Agent.Node), Bounds: d.cfg.HistoryBounds, Log: d.log}}
}

// committed notes what a commit has changed: [store.Options.Committed].
func (r *recorder) committed(changes []store.Change) {
	if changes == nil {
		r.Miss()
		return
	}
	r.Note(eventsOf(changes, protocol.NodeName(r.Node), time.Now()))
}

// unseen is how much earlier than its commit an attachment was made that was not given its
// addresses then, but read back after a store was lost. An ADD takes seconds.
const unseen = time.Minute

// eventsOf returns what changes mean for addresses: what an attachment has kept is no event.
func eventsOf(changes []store.Change, node protocol.NodeName, now time.Time) (events []history.Event) {
	now = now.UTC()
	for _, c := range changes {
		before, after := holdings(c.Before, node), holdings(c.After, node)
		for _, h := range before {
			if !has(after, h) {
				events = append(events, history.Event{Time: now, What: history.Freed, Holding: h})
			}
		}
		at := now
		if now.Sub(c.After.Created) > unseen {
			at = c.After.Created
		}
		for _, h := range after {
			if !has(before, h) {
				events = append(events, history.Event{Time: at, What: history.Given, Holding: h})
			}
		}
	}
	return events
}

func has(all []history.Holding, h history.Holding) bool {
	return slices.ContainsFunc(all, func(x history.Holding) bool { return x.Address == h.Address && x.Pool == h.Pool })
}

// holdings returns the addresses of an attachment.
func holdings(a store.Attachment, node protocol.NodeName) (all []history.Holding) {
	claim, resourceClaim := "", ""
	if a.Claim != nil {
		claim = a.Claim.String()
	}
	if ref, ok := a.ResourceClaim(); ok {
		resourceClaim = ref.String()
	}
	for _, x := range a.Addresses {
		all = append(all, history.Holding{
			Address: x.Addr, Pool: string(x.Pool), Network: a.Network, Namespace: a.Pod.Namespace, Pod: a.Pod.Name, PodUID: string(a.Pod.UID),
			Container: a.ContainerID, Interface: a.IfName, Claim: claim, ResourceClaim: resourceClaim, Node: string(node),
		})
	}
	return all
}

// held returns what has an address by the store.
func held(st *store.Store, node protocol.NodeName) (all []history.Span, err error) {
	err = st.View(func(tx *store.Tx) error {
		for a, err := range tx.Attachments() {
			if err != nil {
				return err
			}
			for _, h := range holdings(a, node) {
				all = append(all, history.Span{Holding: h, From: a.Created})
			}
		}
		return nil
	})
	return all, err
}
