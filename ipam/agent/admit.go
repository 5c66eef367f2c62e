package agent

import (
	"context"

	"github.com/tenure-ipam/tenure/ipam/access"
	"github.com/tenure-ipam/tenure/ipam/node"
	"github.com/tenure-ipam/tenure/ipam/protocol"
	"github.com/tenure-ipam/tenure/ipam/store"
)

// admit returns nil if the pod's namespace may use every pool of the slots, by rules.
// What the interface of the pod has it keeps, also for another sandbox and whatever the
// pools say by now: a rule is about who comes.
func (a *Agent) admit(ctx context.Context, add *addition, slots []node.Slot, rules map[protocol.PoolName]access.Rule) error {
	for _, s := range slots {
		err := rules[s.Pool].Check(ctx, a.cl.Access, add.conf.Pod.Namespace, string(s.Pool))
		if err == nil {
			continue
		}
		if has, readErr := a.hasAddresses(ctx, add); readErr != nil || has {
			return readErr
		}
		return err
	}
	return nil
}

// hasAddresses reports whether the interface of the pod has addresses of the network.
func (a *Agent) hasAddresses(ctx context.Context, add *addition) (has bool, err error) {
	err = a.st.ViewContext(ctx, func(tx *store.Tx) error {
		if _, has, err = tx.Attachment(add.key); err != nil || has || add.ask.Pod.UID == "" {
			return err
		}
		for att, err := range tx.OfPod(add.ask.Pod.UID, add.key.IfName) {
			if err != nil {
				return err
			}
			has = has || att.Network == add.key.Network
		}
		return nil
	})
	return has, err
}
