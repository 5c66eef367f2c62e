package ports

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/vif"
	"github.com/tenure-ipam/tenure/ipam/controller/neutron"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// hanging is an API server that answers no call before its context ends.
type hanging struct {
	client.Client

	met chan bool // if not nil, has for each call whether it has a deadline
}

func (h hanging) hang(ctx context.Context) error {
	if h.met != nil {
		_, bounded := ctx.Deadline()
		h.met <- bounded
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

func (h hanging) Get(ctx context.Context, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return h.hang(ctx)
}

func (h hanging) Create(ctx context.Context, _ client.Object, _ ...client.CreateOption) error {
	return h.hang(ctx)
}

func (h hanging) List(ctx context.Context, _ client.ObjectList, _ ...client.ListOption) error {
	return h.hang(ctx)
}

// TestConnectAtOnce: while the API server does not answer one who connects, others ask it
// themselves, each within a deadline; and a client that is there is had at once.
func TestConnectAtOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "clouds.yaml")
	if err := os.WriteFile(file, []byte("clouds: {openstack: {auth_type: none, auth: {endpoint: http://neutron}}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	const n = 3
	h := hanging{met: make(chan bool, n)}
	c := &Cloud{File: file, Name: "openstack", Live: h}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			if _, err := c.Connect(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("connected: %v", err)
			}
		})
	}
	for i := range n {
		select {
		case bounded := <-h.met:
			if !bounded {
				t.Error("the call has no deadline")
			}
		case <-time.After(soon):
			t.Errorf("%d of %d ask", i, n)
		}
	}
	cancel()
	all.Wait()

	_, c.Live = newPorts(t, nil, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "cluster"}})
	first, err := c.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c.Live = h
	if again, err := c.Connect(t.Context()); err != nil || again != first {
		t.Errorf("connected again: %v, %v; want the same client", again, err)
	}
}

// withSubnets is a Neutron that has subnets of these keys.
type withSubnets struct {
	SubnetMaker

	keys []string
}

func (s withSubnets) EnsureSubnet(context.Context, neutron.NewSubnet) (string, error) {
	return "made", nil
}

func (s withSubnets) SubnetKeys(context.Context) ([]string, error) { return s.keys, nil }

// TestCallsEnd: a sweep, or a pool's making, that meets an API server which does not answer ends by
// itself, and nothing waits for it any more.
func TestCallsEnd(t *testing.T) {
	c := &cloud{ours: []neutron.Port{
		ourPort("a", "gone", "10.9.0.5", macA), ourPort("b", "ub", "10.9.0.6", macB), ourPort("c", "ub", "10.9.0.7", macB),
	}}
	p, kc := newPorts(t, c, claimOf("ub", "10.9.0.6/24", `{"id":"b","mac":"`+macB+`","network":"net","subnets":["sub"]}`))
	p.Live = hanging{}
	r := &Subnets{
		Cache: kc, Live: hanging{}, Write: hanging{}, Log: slog.New(slog.DiscardHandler),
		Connect: func(context.Context) (SubnetMaker, error) { return withSubnets{keys: []string{"unused"}}, nil },
	}
	for name, call := range map[string]func(context.Context) error{
		"a pool that is made": func(ctx context.Context) error {
			_, err := r.make(ctx, &nad.NetworkAttachmentDefinition{}, vif.NewSubnet{CIDR: "10.9.0.0/24"})
			return err
		},
		"a sweep of subnets": func(ctx context.Context) error {
			_, err := r.sweep(ctx, map[string]bool{"unused": true})
			return err
		},
		"a sweep of claims that are gone": func(ctx context.Context) error {
			_, err := p.sweep(ctx, findings{orphans: map[protocol.UID]bool{"gone": true}})
			return err
		},
		"a sweep of ports too many": func(ctx context.Context) error {
			_, err := p.sweep(ctx, findings{surplus: map[string]protocol.UID{"c": "ub"}})
			return err
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			const long = 5 * time.Minute
			ctx, cancel := context.WithTimeout(t.Context(), long)
			defer cancel()
			begun := time.Now()
			if err := call(ctx); err == nil || time.Since(begun) >= long {
				t.Errorf("%s: %v after %v; want an error sooner", name, err, time.Since(begun))
			}
		})
	}
}
