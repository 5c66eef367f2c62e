package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-ipam/tenure/ipam/access"
	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/node/assign"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
)

// CodeClaimRefused is the CNI error code for a claim that the pod may not have.
const CodeClaimRefused agentapi.Code = 101

// CodePoolRefused is the CNI error code for a pool that the pod's namespace may not use.
const CodePoolRefused agentapi.Code = 102

// Serve answers one request of a plugin. Afterwards it logs a line if it was refused; of addresses
// that were given and freed the history has lines.
func (a *Agent) Serve(ctx context.Context, req agentapi.Request) agentapi.Response {
	if req.Verb == agentapi.Selected { // it waits for something to say: nobody measures how long
		return a.attach.Serve(ctx, req)
	}
	began := a.sched.Now()
	resp := agentapi.Response{Version: agentapi.Version}
	var err error
	switch req.Verb {
	case agentapi.Add:
		resp.Result, err = a.add(ctx, req)
	case agentapi.Del:
		err = a.del(ctx, req)
	case agentapi.Check:
		err = a.check(ctx, req)
	case agentapi.GC:
		err = a.collect(ctx, req)
	case agentapi.Status:
		err = a.status(ctx, req)
	case agentapi.Facts, agentapi.Report:
		resp = a.attach.Serve(ctx, req)
	case agentapi.Probe:
		resp.Facts, err = a.strangers.serve(ctx, req)
	case agentapi.Ping, agentapi.Selected:
	}
	if err != nil {
		resp.Result, resp.Error = nil, wireError(err)
	}
	took := a.sched.Now().Since(began)
	said := resp
	resp.After = func() { // what is only told to people takes a tenth of the agent's time
		a.metrics.request(req.Verb, said.Error, took)
		a.logRequest(ctx, req, said, took)
	}
	return resp
}

func (a *Agent) logRequest(ctx context.Context, req agentapi.Request, resp agentapi.Response, took time.Duration) {
	attrs := []any{"verb", string(req.Verb), "sandbox", req.ContainerID, "interface", req.IfName, "took", took}
	switch {
	case resp.Error != nil:
		a.log.WarnContext(ctx, "request refused", append(attrs, "code", uint(resp.Error.Code), "error", resp.Error.Error())...)
	case req.Verb == agentapi.Add:
		addrs := make([]string, len(resp.Result.IPs))
		for i, ip := range resp.Result.IPs {
			addrs[i] = ip.Address.String()
		}
		a.log.DebugContext(ctx, "address held", append(attrs, "address", addrs)...)
	case req.Verb == agentapi.Del:
		a.log.DebugContext(ctx, "address released", attrs...)
	}
}

// wireError adds the agent's own errors to those of [assign.WireError].
func wireError(err error) *agentapi.Error {
	claim, isClaim := errors.AsType[*ClaimError](err)
	refused, isRefused := errors.AsType[*RefusedError](err)
	switch {
	case isClaim && !claim.Later:
		return &agentapi.Error{Code: CodeClaimRefused, Msg: err.Error()}
	case is[*access.DeniedError](err), is[*sourcedError](err), is[*poolspec.NamespaceError](err):
		return &agentapi.Error{Code: CodePoolRefused, Msg: err.Error()}
	case isRefused:
		return &agentapi.Error{Code: refused.code(), Msg: err.Error()}
	case isClaim, passes(err):
		return &agentapi.Error{Code: agentapi.CodeTryAgainLater, Msg: err.Error()}
	case is[*selectionError](err):
		return &agentapi.Error{Code: agentapi.CodeInvalidConfig, Msg: err.Error()}
	}
	return assign.WireError(err)
}

// passes reports whether err passes by itself, so that the runtime is to try again.
func passes(err error) bool {
	for _, cause := range []error{errUnanswered, agentapi.ErrStopped, agentapi.ErrHungUp} {
		if errors.Is(err, cause) {
			return true
		}
	}
	for _, of := range []func(error) bool{
		is[*notReadyError], is[*unplacedError], is[*poolWaitsError], is[*restoreError], is[*notServingError], is[*OutsideError],
		is[*waitingError], is[*podError], is[*waitedError], is[*unaskableError], is[*access.UnknownError],
	} {
		if of(err) {
			return true
		}
	}
	return false
}

// A waitedError says that an ADD has used up its time.
type waitedError struct {
	d       time.Duration
	trouble func() string // with the API server; nil is none
}

func (e *waitedError) Error() string {
	why := ""
	if e.trouble != nil {
		why = e.trouble()
	}
	if why != "" {
		why = ": " + why
	}
	return fmt.Sprintf("the ADD was not done within %v%s; what it began goes on, for the runtime's next try", e.d, why)
}

// A notServingError says why the agent gives out nothing new.
type notServingError struct{ Why string }

func (e *notServingError) Error() string { return "this node gives out no new addresses: " + e.Why }

// del frees what an attachment has. It needs neither the API server nor the
// network's configuration to be right.
func (a *Agent) del(ctx context.Context, req agentapi.Request) error {
	conf, err := poolspec.ParseRelease(req.Config)
	if err != nil {
		return err
	}
	key := store.Key{Network: conf.Name, ContainerID: req.ContainerID, IfName: req.IfName}
	return a.attachments.release(ctx, key, 0)
}

// check is CNI's CHECK.
func (a *Agent) check(ctx context.Context, req agentapi.Request) error {
	conf, err := poolspec.ParseConfig(req.Config, req.Args)
	if err != nil {
		return err
	}
	prev, _, err := conf.PrevAddresses()
	if err != nil {
		return err
	}
	key := store.Key{Network: conf.Name, ContainerID: req.ContainerID, IfName: req.IfName}
	return a.st.ViewContext(ctx, func(tx *store.Tx) error {
		if err := assign.Check(tx, key, prev); err != nil {
			return err
		}
		return checkLost(tx, key)
	})
}

// status is CNI's STATUS: whether an ADD could be served now.
func (a *Agent) status(ctx context.Context, req agentapi.Request) error {
	conf, err := poolspec.ParseConfig(req.Config, req.Args)
	if err != nil {
		return err
	}
	if ok, why := a.reg.serving(); !ok {
		return &agentapi.Error{Code: agentapi.CodeNotAvailable, Msg: "this node gives out no new addresses", Details: why}
	}
	if !conf.ReportFull {
		return nil
	}
	for _, src := range conf.Sources {
		if src.Unnamed {
			name, ok := a.pools.openPlace(poolspec.UnnamedCIDRs(conf.Sources))
			if !ok { // nothing has been given of it here
				continue
			}
			src.Pool = name
		}
		if src.Pool == "" { // it is the pod's namespace that names the pool, and this is of no pod
			continue
		}
		switch why, err := a.rights.full(ctx, src); {
		case err != nil:
			return &agentapi.Error{Code: agentapi.CodeNotAvailable, Msg: "whether a pool of this network is full is not known", Details: err.Error()}
		case why != "":
			return &agentapi.Error{Code: agentapi.CodeNotAvailable, Msg: "a pool of this network is full", Details: why}
		}
	}
	return nil
}

// collect is CNI's GC. It frees what existed when the call began, is not listed,
// and has no network namespace any more.
func (a *Agent) collect(ctx context.Context, req agentapi.Request) error {
	conf, err := poolspec.ParseRelease(req.Config)
	if err != nil {
		return err
	}
	if !conf.HasValidAttachments {
		return &agentapi.Error{Code: agentapi.CodeInvalidConfig, Msg: "GC without cni.dev/valid-attachments: nothing is freed", Details: "the runtime must list the attachments to keep, or an empty list"}
	}
	var garbage []store.Attachment
	err = a.st.ViewContext(ctx, func(tx *store.Tx) error {
		for att, err := range tx.OfNetwork(conf.Name) {
			if err != nil {
				return err
			}
			if !listed(conf.ValidAttachments, att.Key) && a.host.Gone(att) {
				garbage = append(garbage, att)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	var errs []error
	for _, att := range garbage {
		errs = append(errs, a.attachments.release(ctx, att.Key, att.Generation))
	}
	return errors.Join(errs...)
}

func listed(valid []poolspec.AttachmentRef, key store.Key) bool {
	for _, v := range valid {
		if v.ContainerID == key.ContainerID && (v.IfName == "" || v.IfName == key.IfName) {
			return true
		}
	}
	return false
}
