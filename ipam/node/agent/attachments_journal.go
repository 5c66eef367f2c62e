package agent

import (
	"context"

	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/delqueue"
	"github.com/tenure-ipam/tenure/ipam/node/store"
)

// consumeJournal applies the DELs of this attachment that found no agent.
func (as *attachments) consumeJournal(ctx context.Context, key store.Key) error {
	entries, damaged, err := delqueue.OfKey(as.cfg.JournalDir, key.Network, key.ContainerID, key.IfName)
	for _, name := range damaged {
		as.log.WarnContext(ctx, "journal entry damaged, set aside", "file", name)
	}
	if err != nil {
		return as.journalError(err)
	}
	return as.applyJournal(ctx, key, entries)
}

// applyJournal applies and removes DELs of one key, whose lock the caller holds.
// First the store, then the file: between the two a crash leaves a DEL that is
// applied again, and no ADD has been answered meanwhile.
func (as *attachments) applyJournal(ctx context.Context, key store.Key, entries []delqueue.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	if err := as.releaseLocked(ctx, key, 0); err != nil {
		return err
	}
	for _, e := range entries {
		if err := delqueue.Remove(as.cfg.JournalDir, e); err != nil {
			return as.journalError(err)
		}
		as.log.DebugContext(ctx, "address released", "verb", "DEL", "sandbox", e.ContainerID, "interface", e.IfName, "journalled", e.Time)
	}
	return nil
}

// journalError says that the journal of DELs is out of order. Without it an ADD
// cannot know what it would bring back.
func (as *attachments) journalError(err error) error {
	return &agentapi.Error{Code: agentapi.CodeIO, Msg: "the journal of DELs in " + as.cfg.JournalDir + " cannot be used", Details: err.Error()}
}

// drainJournal applies the DELs that found no agent.
func (as *attachments) drainJournal(ctx context.Context) {
	entries, damaged, err := delqueue.List(as.cfg.JournalDir)
	for _, name := range damaged {
		as.log.WarnContext(ctx, "journal entry damaged, set aside", "file", name)
	}
	if err != nil {
		as.log.WarnContext(ctx, "journal not read", "error", err)
	}
	for _, e := range entries {
		key := store.Key{Network: e.Network, ContainerID: e.ContainerID, IfName: e.IfName}
		unlock, err := as.keys.Lock(ctx, as.sched, key)
		if err != nil {
			return
		}
		// Under the lock an ADD may have consumed it meanwhile: read again.
		own, _, err := delqueue.OfKey(as.cfg.JournalDir, e.Network, e.ContainerID, e.IfName)
		if err == nil {
			err = as.applyJournal(ctx, key, own)
		}
		unlock()
		if err != nil {
			as.log.WarnContext(ctx, "journalled DEL not applied", "sandbox", e.ContainerID, "interface", e.IfName, "error", err)
		}
	}
}

// sweepJournal removes what killed plugins have left in the journal's directory.
func (as *attachments) sweepJournal(ctx context.Context) {
	if err := delqueue.Sweep(as.cfg.JournalDir, as.sched.Now().Wall.Add(-ownEvery)); err != nil {
		as.log.WarnContext(ctx, "journal not swept", "error", err)
	}
}

// countDamaged counts the entries of the journal that were set aside.
func (as *attachments) countDamaged(ctx context.Context) {
	aside, err := delqueue.Damaged(as.cfg.JournalDir)
	if err != nil {
		as.log.WarnContext(ctx, "journal not read", "error", err)
		return
	}
	as.damaged.Store(int64(len(aside)))
}
