package agent

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/node/assign"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// A Device is a network device of this node that a pod has by a ResourceClaim.
type Device struct {
	Claim protocol.ResourceClaimRef
	Name  string
	// Pod is the pod that has the ResourceClaim.
	Pod protocol.PodRef
	// IPAMClaim is the claim of the pod's namespace whose addresses the device is to have; empty if
	// none is.
	IPAMClaim string
}

// HoldDevice gives a device its addresses on the network of conf, in the way of an ADD. The same
// device of the same ResourceClaim has the same addresses. Its error is a [*DeviceError].
func (a *Agent) HoldDevice(ctx context.Context, d Device, conf *poolspec.Config) (*agentapi.Result, error) {
	began := a.sched.Now()
	own := *conf
	own.Pod = poolspec.Pod{Namespace: d.Pod.Namespace, Name: d.Pod.Name, UID: string(d.Pod.UID)}
	req := agentapi.Request{Verb: agentapi.Add, ContainerID: string(d.Claim.UID), IfName: d.Name, Netns: store.ResourceClaimNetns(d.Claim.Name)}
	res, err := a.serveAdd(ctx, req, &own, func(ctx context.Context, add *addCall) error {
		add.pod, add.demand.Pod = Pod{PodRef: d.Pod}, d.Pod
		add.sel = npwg.Selection{Interface: d.Name, Claim: d.IPAMClaim}
		att := store.Attachment{Key: add.key, Pod: d.Pod, Netns: req.Netns, Boot: a.cfg.Boot, Created: add.arrived.Wall}
		return a.losses.readBackDevice(ctx, d, att, &own)
	})
	took := a.sched.Now().Since(began)
	a.metrics.request(req.Verb, wireError(err), took)
	if err != nil {
		a.log.WarnContext(ctx, "device refused", "resourceClaim", d.Claim, "device", d.Name, "pod", d.Pod, "took", took, "error", err)
		return nil, a.deviceError(err)
	}
	return res, nil
}

// KnownDevice returns what the store has of a device, if it has addresses.
func (a *Agent) KnownDevice(ctx context.Context, claim protocol.UID, name string) (d Device, ok bool, err error) {
	all, err := a.ofDevice(ctx, claim, name)
	if err != nil || len(all) == 0 {
		return d, false, err
	}
	last := all[len(all)-1]
	d = Device{Name: name, Pod: last.Pod}
	d.Claim, _ = last.ResourceClaim()
	if last.Claim != nil {
		d.IPAMClaim = last.Claim.Name
	}
	return d, true, nil
}

// ReleaseDevice frees what a device has. One that has nothing is no error.
func (a *Agent) ReleaseDevice(ctx context.Context, claim protocol.UID, name string) error {
	began := a.sched.Now()
	all, err := a.ofDevice(ctx, claim, name)
	for _, att := range all {
		if err == nil {
			err = a.attachments.release(ctx, att.Key, att.Generation)
		}
	}
	a.metrics.request(agentapi.Del, wireError(err), a.sched.Now().Since(began))
	return err
}

// ofDevice returns the attachments of a device, one for each network, the latest last.
func (a *Agent) ofDevice(ctx context.Context, claim protocol.UID, name string) (all []store.Attachment, err error) {
	err = a.st.ViewContext(ctx, func(tx *store.Tx) error {
		all = all[:0]
		for att, err := range tx.Attachments() {
			if err != nil {
				return err
			}
			if ref, ok := att.ResourceClaim(); ok && ref.UID == claim && att.IfName == name {
				all = append(all, att)
			}
		}
		return nil
	})
	slices.SortFunc(all, func(x, y store.Attachment) int { return cmp.Compare(x.Generation, y.Generation) })
	return all, err
}

// DeviceFault is what kind of thing is wrong with a question about a device.
type DeviceFault uint8

// The kinds.
const (
	DevicePasses   DeviceFault = iota // it may change by itself
	DeviceInvalid                     // what is asked for cannot be had
	DeviceUnknown                     // there is no such pool
	DeviceConflict                    // another has what is asked for
)

// A DeviceError says why a device gets no address.
type DeviceError struct {
	Fault DeviceFault
	Err   error
}

func (e *DeviceError) Error() string { return e.Err.Error() }

func (e *DeviceError) Unwrap() error { return e.Err }

// refusedInUse is the reason of a refusal of what another has; see the API's constants.
const refusedInUse = "InUse"

// deviceError sorts what [wireError] sorts for plugins.
func (a *Agent) deviceError(err error) *DeviceError {
	e := &DeviceError{Err: err}
	refused, isRefused := errors.AsType[*RefusedError](err)
	waits, isNotReady := errors.AsType[*notReadyError](err)
	absent := false
	if isNotReady {
		_, absent = a.pools.heard(waits.Pool)
	}
	switch code := wireError(err).Code; {
	case is[*assign.TakenError](err), is[*assign.ConflictError](err), isRefused && refused.Reason == refusedInUse, code == CodeClaimRefused:
		e.Fault = DeviceConflict
	case absent:
		e.Fault = DeviceUnknown
	case code == CodePoolRefused, code < agentapi.CodeTryAgainLater && code != agentapi.CodeIO:
		e.Fault = DeviceInvalid
	}
	return e
}

// sparingHost is the host for which the device of a ResourceClaim is never gone: it has no network
// namespace of which that could be told, and a reboot leaves the ResourceClaim.
type sparingHost struct{ Host }

// Gone implements [Host].
func (h sparingHost) Gone(att store.Attachment) bool {
	_, claimed := att.ResourceClaim()
	return !claimed && h.Host.Gone(att)
}

// deviceGone reports whether the ResourceClaim that has att is gone, or the device is not allocated
// to it any more, and no sandbox of its pod is here. The API server is asked where no sandbox is.
func (as *attachments) deviceGone(ctx context.Context, att store.Attachment, ref protocol.ResourceClaimRef, all []store.Attachment, sandboxes func() func(protocol.UID) bool) bool {
	if as.cl.ResourceClaims == nil || sandboxes()(att.Pod.UID) {
		return false
	}
	for _, other := range all {
		_, claimed := other.ResourceClaim()
		if !claimed && other.Pod.UID == att.Pod.UID && !as.host.Gone(other) {
			return false
		}
	}
	now, out, _ := as.cl.ResourceClaims.ReadDevices(ctx, as.cfg.Node, ref.Namespace, ref.Name)
	return out == protocol.NotFound || out == protocol.Done && (now.UID != ref.UID || !slices.Contains(now.Devices, att.IfName))
}
