// Package local hands out addresses without a cluster: each network has a store
// of its own on this host, and every call of the plugin opens it, works in one
// transaction, and closes it. Calls of one network wait for each other at the
// store's lock, so it is safe among any number of processes.
//
// What an attachment gets is decided by package assign, as on the agent. Local
// mode adds where blocks come from, which is the network's own ranges.
package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/netns"
	"github.com/tenure-ipam/tenure/ipam/node/assign"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
)

// Serve answers req, whose configuration is in local mode, as the agent would.
// It waits for other processes until ctx ends; now is recorded with what an ADD
// gets. It has to run where the runtime's paths of network namespaces mean what
// the runtime means.
func Serve(ctx context.Context, req agentapi.Request, now time.Time) agentapi.Response {
	return here().serve(ctx, req, now)
}

func (h host) serve(ctx context.Context, req agentapi.Request, now time.Time) agentapi.Response {
	resp := agentapi.Response{Version: agentapi.Version}
	var err error
	switch req.Verb {
	case agentapi.Add:
		resp.Result, resp.Warnings, err = h.add(ctx, req, now)
	case agentapi.Del:
		resp.Warnings, err = del(ctx, req)
	case agentapi.Check:
		err = check(ctx, req)
	case agentapi.Status:
		err = h.status(ctx, req)
	case agentapi.GC:
		err = h.gc(ctx, req)
	case agentapi.Ping:
	default:
		err = &agentapi.Error{Code: agentapi.CodeDecoding, Msg: fmt.Sprintf("unknown verb %q", req.Verb)}
	}
	resp.Error = assign.WireError(err)
	return resp
}

// path returns where c's network has its store. The name of a CNI network can be
// a file's.
func path(c *poolspec.Config) string { return filepath.Join(c.DataDir, c.Name+".db") }

func keyOf(c *poolspec.Config, req agentapi.Request) store.Key {
	return store.Key{Network: c.Name, ContainerID: req.ContainerID, IfName: req.IfName}
}

// open opens the network's store. The caller closes it soon: other calls wait for that.
func open(ctx context.Context, c *poolspec.Config) (*store.Store, error) {
	st, err := store.OpenLocal(ctx, path(c), store.Options{})
	if err != nil && ctx.Err() != nil {
		return nil, fmt.Errorf("wait for other calls of network %s: %w", c.Name, err)
	}
	return st, err
}

// openIfThere opens the network's store if it exists. ok is false if it does not.
func openIfThere(ctx context.Context, c *poolspec.Config) (st *store.Store, ok bool, err error) {
	if _, err := os.Lstat(path(c)); errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	st, err = open(ctx, c)
	return st, err == nil, err
}

// add answers an ADD. There is no agent whose log could say which keys of the
// configuration have no effect, so the runtime's does. It also says from whom addresses were taken
// back, and that another machine uses the same store.
func (h host) add(ctx context.Context, req agentapi.Request, now time.Time) (result *agentapi.Result, warnings []string, err error) {
	c, err := poolspec.ParseConfig(req.Config, req.Args)
	if err != nil {
		return nil, nil, err
	}
	ps, slots, err := plan(c)
	if err != nil {
		return nil, nil, err
	}
	st, err := open(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	a := assign.Demand{
		Key: keyOf(c, req), Pod: assign.PodOf(c), Netns: req.Netns, NetnsID: req.NetnsID, Boot: h.mark(), Now: now,
		Slots: slots, Gone: h.gone,
	}
	err = st.Update(ctx, func(tx *store.Tx) error {
		other, err := h.claim(tx)
		if err != nil {
			return err
		}
		if warnings = slices.Clone(c.Ignored); other != "" {
			warnings = append(warnings, fmt.Sprintf("ipam.dataDir: machine %s has used %s before this machine, which is %s: give each machine a directory on a disk of its own", other, path(c), h.machine))
		}
		held, from, err := h.hold(tx, ps, a)
		if err != nil {
			return err
		}
		for _, x := range from {
			warnings = append(warnings, fmt.Sprintf("no address was free: those of container %s, interface %s, are taken back, since its network namespace is gone", x.ContainerID, x.IfName))
		}
		if result, err = assign.Result(c, held); err != nil {
			return err
		}
		return assign.Reach(c, result)
	})
	if err != nil {
		return nil, warnings, err
	}
	return result, warnings, nil
}

// del frees what the attachment has. A network without a store has nothing. A
// damaged store is reported and no reason to fail: nothing can be freed in it,
// its remedy is a new one, in which there is nothing to free, and a DEL that
// fails keeps a pod from going away.
func del(ctx context.Context, req agentapi.Request) (warnings []string, err error) {
	c, err := poolspec.ParseRelease(req.Config)
	if err != nil {
		return nil, err
	}
	st, ok, err := openIfThere(ctx, c)
	if errors.Is(err, store.ErrCorrupt) {
		return []string{fmt.Sprintf("nothing is freed: %v", err)}, nil
	}
	if err != nil || !ok {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	return nil, st.Update(ctx, func(tx *store.Tx) error {
		_, _, err := assign.Release(tx, keyOf(c, req))
		return err
	})
}

func check(ctx context.Context, req agentapi.Request) (err error) {
	c, err := poolspec.ParseConfig(req.Config, req.Args)
	if err != nil {
		return err
	}
	prev, ok, err := c.PrevAddresses()
	if err != nil {
		return err
	}
	if !ok {
		return &agentapi.Error{Code: agentapi.CodeInvalidConfig, Msg: "prevResult is missing: CHECK compares with the result of ADD"}
	}
	k := keyOf(c, req)
	st, ok, err := openIfThere(ctx, c)
	if err != nil {
		return err
	}
	if !ok {
		return &assign.CheckError{Key: k, Reason: "has no address recorded"}
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	return st.View(func(tx *store.Tx) error { return assign.Check(tx, k, prev) })
}

// errUndo ends a transaction that only tried something.
var errUndo = errors.New("only tried")

// status reports whether an ADD would be served. That all addresses are in use
// is an answer only where the configuration asks for it: a full network must not
// make a machine look broken.
func (h host) status(ctx context.Context, req agentapi.Request) (err error) {
	c, err := poolspec.ParseConfig(req.Config, "")
	if err != nil {
		return err
	}
	anybody := *c
	anybody.Requested = nil // an address asked for by name says nothing about others
	ps, slots, err := plan(&anybody)
	if err != nil {
		return err
	}
	st, err := open(ctx, c)
	if err != nil {
		return notAvailable(err)
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	trial := store.Key{Network: c.Name, ContainerID: "status", IfName: "status"}
	err = st.Update(ctx, func(tx *store.Tx) error {
		if _, _, err := h.hold(tx, ps, assign.Demand{Key: trial, Slots: slots}); err != nil {
			return err
		}
		return errUndo
	})
	if _, full := errors.AsType[*assign.NoRoomError](err); !errors.Is(err, errUndo) && (!full || c.ReportFull) {
		return notAvailable(err)
	}
	// Whether the disk has room shows only when something is written. A record
	// without addresses takes nothing from anybody, and GC removes what a crash
	// leaves of it.
	if err := st.Update(ctx, func(tx *store.Tx) error { return tx.PutAttachment(store.Attachment{Key: trial}) }); err != nil {
		return notAvailable(err)
	}
	return st.Update(ctx, func(tx *store.Tx) error { return tx.DeleteAttachment(trial) })
}

func notAvailable(err error) error {
	return &agentapi.Error{Code: agentapi.CodeNotAvailable, Msg: err.Error()}
}

// gc frees the network's attachments that the runtime does not list, except
// those whose network namespace is certainly there: the runtime's list may be
// older than an ADD, and an address in use must not be freed. They are found by
// a later GC, or their DEL. Another machine's are kept as well. It goes on after an error
// and reports all.
func (h host) gc(ctx context.Context, req agentapi.Request) (err error) {
	c, err := poolspec.ParseRelease(req.Config)
	if err != nil {
		return err
	}
	if !c.HasValidAttachments {
		return &agentapi.Error{Code: agentapi.CodeInvalidConfig,
			Msg: "cni.dev/valid-attachments is missing: without it, GC cannot tell what to keep and frees nothing"}
	}
	st, ok, err := openIfThere(ctx, c)
	if err != nil || !ok {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	garbage, err := h.findGarbage(st, c)
	if err != nil {
		return err
	}
	var errs []error
	for _, x := range garbage {
		if err := st.Update(ctx, func(tx *store.Tx) error {
			_, _, err := assign.ReleaseIf(tx, x.Key, x.Generation)
			return err
		}); err != nil {
			errs = append(errs, fmt.Errorf("free %s: %w", x.Key, err))
		}
	}
	return errors.Join(errs...)
}

// findGarbage returns the attachments that gc frees: the runtime does not list them, their
// network namespaces are not certainly there, and they are not another machine's.
func (h host) findGarbage(st *store.Store, c *poolspec.Config) (garbage []store.Attachment, err error) {
	err = st.View(func(tx *store.Tx) error {
		for x, err := range tx.OfNetwork(c.Name) {
			if err != nil {
				return err
			}
			listed := slices.ContainsFunc(c.ValidAttachments, func(v poolspec.AttachmentRef) bool {
				return v.ContainerID == x.ContainerID && (v.IfName == "" || v.IfName == x.IfName)
			})
			alive := x.NetnsID != "" && netns.ID(x.Netns) == x.NetnsID
			if !listed && !alive && h.originOf(x) != elsewhere {
				garbage = append(garbage, x)
			}
		}
		return nil
	})
	return garbage, err
}
