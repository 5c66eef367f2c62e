package agent

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"

	"github.com/tenure-ipam/tenure/ipam/access"
	"github.com/tenure-ipam/tenure/ipam/node/assign"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// nobodyMay is an API server that lets no namespace use a pool that asks for it.
type nobodyMay struct{}

func (nobodyMay) Labels(context.Context, string) (map[string]string, error) {
	return map[string]string{}, nil
}
func (nobodyMay) MayUse(context.Context, string, string) (bool, error) { return false, nil }

// TestAdmitKeepsWhatThePodHas: a pod whose namespace may not use a pool any more keeps its
// address of it, also in its next sandbox. That does not let it into another pool, which
// its network's definition names by then.
func TestAdmitKeepsWhatThePodHas(t *testing.T) {
	const mine = "K8S_POD_NAMESPACE=tenant;K8S_POD_NAME=p;K8S_POD_UID=pod"
	for _, tt := range []struct {
		name, network, container, pod, pools string
		admitted                             bool
	}{
		{"its sandbox", "net", "old", mine, `["lan"]`, true},
		{"its sandbox, which is answered what it has", "net", "old", mine, `["secret"]`, true},
		{"its next sandbox", "net", "new", mine, `["lan"]`, true},
		{"its next sandbox, in another pool", "net", "new", mine, `["secret"]`, false},
		{"its next sandbox, in another pool too", "net", "new", mine, `["lan","secret"]`, false},
		{"another network's sandbox", "fresh", "new", mine, `["lan"]`, false},
		{"another pod", "net", "new", "K8S_POD_NAMESPACE=tenant;K8S_POD_NAME=q;K8S_POD_UID=q", `["lan"]`, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, p := newBubbleAgent(t)
				a.cl.Access = nobodyMay{}
				p.known.Access = access.Rule{Asks: true}
				addPool(t, a, "secret", poolspec.RangeText{CIDR: "10.9.0.0/24"}).known.Access = access.Rule{Asks: true}
				err := a.st.Update(t.Context(), func(tx *store.Tx) error {
					return tx.PutAttachment(store.Attachment{
						Key: store.Key{Network: "net", ContainerID: "old", IfName: "net1"}, Pod: protocol.PodRef{Namespace: "tenant", Name: "p", UID: "pod"},
						Addresses: []store.Address{{Addr: netip.MustParseAddr("10.0.0.5"), Bits: 27, Pool: "lan", Lease: "lan.0a000004.30"}},
					})
				})
				if err != nil {
					t.Fatal(err)
				}
				conf, err := poolspec.ParseConfig([]byte(`{"cniVersion":"1.1.0","name":"`+tt.network+`","type":"bridge","ipam":{"type":"tenure","pools":`+tt.pools+`}}`), tt.pod)
				if err != nil {
					t.Fatal(err)
				}
				key := store.Key{Network: tt.network, ContainerID: tt.container, IfName: "net1"}
				_, err = a.slots(t.Context(), &addCall{conf: conf, key: key, demand: assign.Demand{Key: key, Pod: assign.PodOf(conf)}}, a.pools.answerable)
				if is[*access.DeniedError](err) == tt.admitted || err != nil && tt.admitted {
					t.Errorf("error %v; want that the pod is admitted: %v", err, tt.admitted)
				}
			})
		})
	}
}
