package agent

import (
	"context"
	"fmt"
	"slices"

	"github.com/tenure-ipam/tenure/ipam/access"
	"github.com/tenure-ipam/tenure/ipam/node/assign"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// admit returns nil if the pod's namespace may use every pool of the slots, by rules.
// What the interface of the pod has it keeps, also for another sandbox and whatever a
// pool says by now: its rule is about who comes to it.
func (a *Agent) admit(ctx context.Context, add *addCall, slots []assign.Slot, rules map[protocol.PoolName]access.Rule) error {
	for _, s := range slots {
		err := rules[s.Pool].Check(ctx, a.cl.Access, add.conf.Pod.Namespace, string(s.Pool))
		if err == nil {
			continue
		}
		keeps, readErr := a.keepsAddresses(ctx, add, s.Pool)
		if readErr != nil {
			return readErr
		}
		if !keeps {
			return err
		}
	}
	return nil
}

// A sourcedError says that an interface asks for addresses of a pool with a source, and has no
// claim.
type sourcedError struct{ Pool protocol.PoolName }

func (e *sourcedError) Error() string {
	return fmt.Sprintf("pool %s has its addresses from Neutron, and gives them to IPAMClaims alone: select a definition with the annotation tenure.dev/vif, "+
		"or have the pod name a claim by ipam-claim-reference", e.Pool)
}

// keepsAddresses reports whether the attachment has addresses, which are all that it will
// be answered, or another sandbox of it has some of pool, which it may take over.
func (a *Agent) keepsAddresses(ctx context.Context, add *addCall, pool protocol.PoolName) (keeps bool, err error) {
	err = a.st.ViewContext(ctx, func(tx *store.Tx) error {
		if _, keeps, err = tx.Attachment(add.key); err != nil || keeps || add.demand.Pod.UID == "" {
			return err
		}
		for att, err := range tx.OfPod(add.demand.Pod.UID, add.key.IfName) {
			if err != nil {
				return err
			}
			keeps = keeps || att.Network == add.key.Network &&
				slices.ContainsFunc(att.Addresses, func(x store.Address) bool { return x.Pool == pool })
		}
		return nil
	})
	return keeps, err
}
