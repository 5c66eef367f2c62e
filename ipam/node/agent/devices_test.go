package agent

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/cniresults"
	"github.com/tenure-ipam/tenure/ipam/node/assign"
	"github.com/tenure-ipam/tenure/ipam/node/sightings"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// oneResourceClaim is a cluster with the ResourceClaim ns/nic of that UID and these devices, or
// what a read of it comes to.
type oneResourceClaim struct {
	uid     protocol.UID
	devices []string
	quiet   bool // no driver asks for what its devices have
	out     protocol.Outcome
	reads   int
}

func (c *oneResourceClaim) ReadDevices(_ context.Context, _ protocol.NodeName, namespace, name string) (protocol.ClaimedDevices, protocol.Outcome, error) {
	c.reads++
	if namespace != "ns" || name != "nic" {
		return protocol.ClaimedDevices{}, protocol.NotFound, errors.New("not found")
	}
	return protocol.ClaimedDevices{UID: c.uid, Devices: c.devices, Profile: !c.quiet}, c.out, nil
}

// boxHost is a host on which pods have sandboxes by the CNI library's results, with a namespace or
// without one, and no namespace that was recorded is there.
type boxHost struct {
	goneHost
	pods   map[string]bool
	unread []*cniresults.FileError
}

func (h boxHost) Cached() (all []cniresults.Entry, unread []*cniresults.FileError, err error) {
	for pod, there := range h.pods {
		e := cniresults.Entry{Args: "K8S_POD_UID=" + pod, Netns: "gone"}
		if there {
			e.Netns = "there"
		}
		all = append(all, e)
	}
	return all, h.unread, nil
}

func (boxHost) There(netns string) bool { return netns == "there" }

func TestDeviceGone(t *testing.T) {
	const uid = "rc"
	devices := []string{"eth0", "eth1"}
	for _, tt := range []struct {
		name  string
		now   *oneResourceClaim // nil: nobody reads ResourceClaims
		host  boxHost
		boot  string
		want  bool
		reads int
	}{
		{"it is there", &oneResourceClaim{uid: uid, devices: devices, out: protocol.Done}, boxHost{}, "", false, 1},
		{"it is there, of an earlier boot", &oneResourceClaim{uid: uid, devices: devices, out: protocol.Done}, boxHost{}, "before", false, 1},
		{"it is gone", &oneResourceClaim{out: protocol.NotFound}, boxHost{}, "", true, 1},
		{"another has its name", &oneResourceClaim{uid: "other", devices: devices, out: protocol.Done}, boxHost{}, "", true, 1},
		{"it has let go of its devices", &oneResourceClaim{uid: uid, out: protocol.Done}, boxHost{}, "", true, 1},
		{"it has another device", &oneResourceClaim{uid: uid, devices: []string{"eth0"}, out: protocol.Done}, boxHost{}, "", true, 1},
		{"it has let go of its devices, and the pod's sandbox is there", &oneResourceClaim{uid: uid, out: protocol.Done}, boxHost{pods: map[string]bool{"pod": true}}, "", false, 0},
		{"it is not known", &oneResourceClaim{out: protocol.Unknown}, boxHost{}, "", false, 1},
		{"it may not be read", &oneResourceClaim{out: protocol.Refused}, boxHost{}, "", false, 1},
		{"it is gone, and the pod's sandbox is there", &oneResourceClaim{out: protocol.NotFound}, boxHost{pods: map[string]bool{"pod": true}}, "", false, 0},
		{"it is gone, and so is the sandbox", &oneResourceClaim{out: protocol.NotFound}, boxHost{pods: map[string]bool{"pod": false, "other": true}}, "", true, 1},
		{"it is gone, and what is on the host does not read", &oneResourceClaim{out: protocol.NotFound}, boxHost{unread: []*cniresults.FileError{{}}}, "", false, 0},
		{"nobody serves devices any more", nil, boxHost{}, "", false, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := newRestoredAgent(t)
			a.host = sparingHost{tt.host}
			a.attachments.sightings = sightings.New(a.st, a.host, a.sched, a.log, a.background, func() {})
			if tt.now != nil {
				a.cl.ResourceClaims = tt.now
			}
			att := store.Attachment{
				Key: store.Key{Network: "lan", ContainerID: uid, IfName: "eth1"}, Netns: store.ResourceClaimNetns("nic"), Boot: tt.boot,
				Pod: protocol.PodRef{Namespace: "ns", Name: "p", UID: "pod"},
			}
			if got := a.attachments.isGarbage(t.Context(), att, []store.Attachment{att}, func() func(protocol.UID) bool { return a.attachments.sightings.Sandboxes(t.Context()) }); got != tt.want {
				t.Errorf("garbage: %v; want %v", got, tt.want)
			}
			if tt.now != nil && tt.now.reads != tt.reads {
				t.Errorf("%d reads; want %d", tt.now.reads, tt.reads)
			}
			if a.host.Gone(att) {
				t.Error("its network namespace is said to be gone")
			}
		})
	}
}

func TestDeviceError(t *testing.T) {
	a := newRestoredAgent(t)
	for _, tt := range []struct {
		err  error
		want DeviceFault
	}{
		{&assign.TakenError{}, DeviceConflict},
		{&assign.ConflictError{}, DeviceConflict},
		{&RefusedError{protocol.Refusal{Reason: refusedInUse}}, DeviceConflict},
		{&RefusedError{protocol.Refusal{Reason: refusedNotAssignable}}, DeviceInvalid},
		{&RefusedError{protocol.Refusal{Reason: "Exhausted"}}, DevicePasses},
		{&ClaimError{}, DeviceConflict},
		{&ClaimError{Later: true}, DevicePasses},
		{&sourcedError{"lan"}, DeviceInvalid},
		{&selectionError{}, DeviceInvalid},
		{poolspec.ErrConfig, DeviceInvalid},
		{&assign.NoRoomError{}, DevicePasses},
		{&notServingError{}, DevicePasses},
		{&notReadyError{Pool: "lan"}, DevicePasses},
		{store.ErrCorrupt, DevicePasses},
		{agentapi.ErrStopped, DevicePasses},
		{errors.New("anything"), DevicePasses},
	} {
		if got := a.deviceError(tt.err); got.Fault != tt.want || !errors.Is(got, tt.err) {
			t.Errorf("%T %v: %d; want %d", tt.err, tt.err, got.Fault, tt.want)
		}
	}
}

// noNetns is a host on which no network namespace is.
type noNetns struct{ goneHost }

func (noNetns) Netns() ([]store.Netns, error) { return nil, nil }

// TestFrozenForAResourceClaim: what a lost store held stays frozen while a ResourceClaim of that
// time may have devices, whose addresses a driver has asked for.
func TestFrozenForAResourceClaim(t *testing.T) {
	const uid = "rc"
	pods := []Pod{{PodRef: protocol.PodRef{Namespace: "ns", Name: "p", UID: "p"}, ResourceClaims: []string{"nic", "gone"}}}
	for _, tt := range []struct {
		name      string
		then, now *oneResourceClaim // nil: nobody reads ResourceClaims
		want      string
	}{
		{"it has a device", &oneResourceClaim{uid: uid, out: protocol.Done}, &oneResourceClaim{uid: uid, devices: []string{"eth1"}, out: protocol.Done}, "ResourceClaim ns/nic"},
		{"it has none", &oneResourceClaim{uid: uid, out: protocol.Done}, &oneResourceClaim{uid: uid, out: protocol.Done}, ""},
		{"it is gone", &oneResourceClaim{uid: uid, out: protocol.Done}, &oneResourceClaim{out: protocol.NotFound}, ""},
		{"another has its name", &oneResourceClaim{uid: uid, out: protocol.Done}, &oneResourceClaim{uid: "other", devices: []string{"eth1"}, out: protocol.Done}, ""},
		{"it is not known", &oneResourceClaim{uid: uid, out: protocol.Done}, &oneResourceClaim{out: protocol.Unknown}, "an error"},
		{"nobody reads it any more", &oneResourceClaim{uid: uid, out: protocol.Done}, nil, "ResourceClaim ns/nic"},
		{"it could not be read then", &oneResourceClaim{out: protocol.Refused}, &oneResourceClaim{uid: uid, devices: []string{"eth1"}, out: protocol.Done}, "ResourceClaim ns/nic"},
		{"no driver asks for it", &oneResourceClaim{uid: uid, quiet: true, out: protocol.Done}, &oneResourceClaim{uid: uid, devices: []string{"gpu"}, out: protocol.Done}, ""},
		{"nobody read it then", nil, nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := newRestoredAgent(t)
			a.cfg.Boot = "boot1"
			a.cl.Pods, a.host = &nodePods{pods: pods}, noNetns{}
			if tt.then != nil {
				a.cl.ResourceClaims = tt.then
			}
			lost, err := a.losses.moment(t.Context(), protocol.Former{Store: "lost", Boot: "boot1"})
			if err != nil {
				t.Fatal(err)
			}
			if got, err := a.losses.stillRuns(t.Context(), lost); err != nil || got != "pod ns/p" {
				t.Errorf("while the pod runs: %q, %v", got, err)
			}
			a.cl.Pods, a.cl.ResourceClaims = &nodePods{}, nil
			if tt.now != nil {
				a.cl.ResourceClaims = tt.now
			}
			got, err := a.losses.stillRuns(t.Context(), lost)
			if err != nil {
				got = "an error"
			}
			if got != tt.want {
				t.Errorf("frozen for %q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

// TestDeviceOutlivesAFrozenStore: what a device was read back with stays its own when nothing of
// the lost store's time runs any more: the device has no network namespace of that time.
func TestDeviceOutlivesAFrozenStore(t *testing.T) {
	a := newRestoredAgent(t)
	lease := protocol.FrozenLease(protocol.Lease{
		Meta: protocol.Meta{Name: protocol.LeaseName("lan", netip.MustParsePrefix("10.0.0.4/30")), UID: "u", Revision: "7"}, Pool: "lan",
		Block: netip.MustParsePrefix("10.0.0.4/30"), Holder: protocol.Holder{Node: "n1"}, Store: "lost", Term: 1, Writes: 1,
	})
	on := func(key store.Key, netns string) store.Attachment {
		return store.Attachment{Key: key, Netns: netns, Addresses: []store.Address{{Addr: netip.MustParseAddr("10.0.0.5"), Bits: 24, Pool: "lan", Lease: lease.Name}}}
	}
	device := on(store.Key{Network: "lan", ContainerID: "rc", IfName: "eth1"}, store.ResourceClaimNetns("nic"))
	pod := on(store.Key{Network: "lan", ContainerID: "sandbox", IfName: "net1"}, "/run/netns/gone")
	if err := a.st.Update(t.Context(), func(tx *store.Tx) error {
		return errors.Join(tx.PutRight(lease), tx.PutAttachment(device), tx.PutAttachment(pod))
	}); err != nil {
		t.Fatal(err)
	}
	_, unverified, err := a.losses.ofLost("lost")
	if err != nil || len(unverified) != 1 || unverified[0].Key != pod.Key {
		t.Errorf("freed with the lost store: %v, %v; want only %v", unverified, err, pod.Key)
	}
}
