package dranet

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/node/agent"
	"github.com/tenure-ipam/tenure/ipam/node/sched"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// scene is devices and a cluster as a test has them.
type scene struct {
	known  agent.Device // has an address; of none the UID is empty
	found  agent.Device
	lost   error // of a search for the ResourceClaim
	text   string
	why    string
	noText error
	held   error
	hangs  bool         // HoldDevice waits until its context ends
	got    agent.Device // who asked last, and for which network
	conf   *poolspec.Config
	freed  string
}

func (s *scene) HoldDevice(ctx context.Context, d agent.Device, conf *poolspec.Config) (*agentapi.Result, error) {
	s.got, s.conf = d, conf
	if s.hangs {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	return &agentapi.Result{IPs: []agentapi.IP{{Address: netip.MustParsePrefix("10.0.0.7/24")}}}, s.held
}

func (s *scene) KnownDevice(context.Context, protocol.UID, string) (agent.Device, bool, error) {
	return s.known, s.known.Claim.UID != "", nil
}

func (s *scene) ReleaseDevice(_ context.Context, claim protocol.UID, name string) error {
	s.freed = string(claim) + " " + name
	return s.held
}

func (s *scene) FindResourceClaim(context.Context, protocol.UID) (agent.Device, error) {
	return s.found, s.lost
}

func (s *scene) Definition(_ context.Context, namespace, name, forNamespace string) (config, why string, err error) {
	if namespace != "infra" || name != "lan" || forNamespace != "ns" {
		return "", "", ErrNoDefinition
	}
	return s.text, s.why, s.noText
}

const askFor = `{"device":{"name":"eth1","mac_address":"x"},"claim_uid":"rc","config":{"profile":"PROFILE","interface":{},"rules":[]}}`

func ask(s *scene, path, body string) *httptest.ResponseRecorder {
	srv := Server{Devices: s, Cluster: s, Sched: sched.Goroutines(nil), Log: slog.New(slog.DiscardHandler)}
	w := httptest.NewRecorder()
	srv.handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)))
	return w
}

func TestAnswers(t *testing.T) {
	claim := protocol.ResourceClaimRef{Namespace: "ns", Name: "nic", UID: "rc"}
	found := agent.Device{Claim: claim, Pod: protocol.PodRef{Namespace: "ns", Name: "new", UID: "p2"}, IPAMClaim: "kept"}
	known := agent.Device{Claim: claim, Name: "eth1", Pod: protocol.PodRef{Namespace: "ns", Name: "old", UID: "p1"}}
	const ours = `{"name":"net","type":"x","ipam":{"type":"tenure","pool":"lan"}}`
	for _, tt := range []struct {
		name, profile string
		s             scene
		status        int
		words         string
		pod, ipam     string
	}{
		{"a pool", "tenure.dev/lan", scene{found: found}, 200, `{"interface":{"addresses":["10.0.0.7/24"]}}`, "new", "kept"},
		{"one that has an address, with a later pod", "tenure.dev/lan", scene{found: found, known: known}, 200, "10.0.0.7", "new", ""},
		{"one that has an address, the API server is away", "tenure.dev/lan", scene{lost: errors.New("away"), known: known}, 200, "10.0.0.7", "old", ""},
		{"the API server is away", "tenure.dev/lan", scene{lost: errors.New("away")}, 500, "away", "", ""},
		{"a definition", "infra/lan", scene{found: found, text: ours}, 200, "10.0.0.7", "new", "kept"},
		{"no definition", "infra/wan", scene{found: found}, 404, "no NetworkAttachmentDefinition wan in namespace infra", "", ""},
		{"a definition of others", "infra/lan", scene{found: found, text: ours, why: "it is private"}, 400, "may not be used by ResourceClaim ns/nic: it is private", "", ""},
		{"a definition that cannot be read", "infra/lan", scene{found: found, noText: errors.New("away")}, 500, "away", "", ""},
		{"a pool that cannot be", "tenure.dev/Lan", scene{found: found}, 400, "cannot be a pool's name", "", ""},
		{"another's profile", "a/b/c", scene{found: found}, 404, "none of Tenure's", "", ""},
		{"invalid", "tenure.dev/lan", scene{found: found, held: &agent.DeviceError{Fault: agent.DeviceInvalid, Err: errors.New("no")}}, 400, "no", "new", "kept"},
		{"no such pool", "tenure.dev/lan", scene{found: found, held: &agent.DeviceError{Fault: agent.DeviceUnknown, Err: errors.New("no")}}, 404, "no", "new", "kept"},
		{"another's address", "tenure.dev/lan", scene{found: found, held: &agent.DeviceError{Fault: agent.DeviceConflict, Err: errors.New("no")}}, 409, "no", "new", "kept"},
		{"not now", "tenure.dev/lan", scene{found: found, held: &agent.DeviceError{Err: errors.New("no")}}, 500, "no", "new", "kept"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := ask(&tt.s, PathProfile, strings.ReplaceAll(askFor, "PROFILE", tt.profile))
			if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.words) {
				t.Errorf("got %d %s; want %d with %q", w.Code, w.Body, tt.status, tt.words)
			}
			if got := tt.s.got; got.Pod.Name != tt.pod || got.IPAMClaim != tt.ipam || tt.pod != "" && (got.Name != "eth1" || got.Claim != claim) {
				t.Errorf("asked for %+v; want pod %q and IPAMClaim %q", got, tt.pod, tt.ipam)
			}
		})
	}
}

// TestLate: the driver, which waits for ten seconds, is told why there is no answer.
func TestLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		w := ask(&scene{hangs: true}, PathProfile, strings.ReplaceAll(askFor, "PROFILE", "tenure.dev/lan"))
		if w.Code != 500 || !strings.Contains(w.Body.String(), "not done within 8s") || time.Since(began) >= 10*time.Second {
			t.Errorf("got %d %s after %v; want 500 that says so, in time", w.Code, w.Body, time.Since(began))
		}
	})
}

func TestRelease(t *testing.T) {
	s := &scene{}
	if w := ask(s, PathRelease, strings.ReplaceAll(askFor, "PROFILE", "gone/away")); w.Code != 200 || s.freed != "rc eth1" {
		t.Errorf("got %d %s, and %q is freed; want 200 and the device's", w.Code, w.Body, s.freed)
	}
	s.held = errors.New("disk full")
	if w := ask(s, PathRelease, askFor); w.Code != 500 || !strings.Contains(w.Body.String(), "disk full") {
		t.Errorf("got %d %s; want 500 with the reason", w.Code, w.Body)
	}
	if w := ask(s, "/GetDeviceConfig", askFor); w.Code != 404 {
		t.Errorf("a cloud provider's question is answered %d; want 404", w.Code)
	}
	if w := ask(s, PathProfile, `{"config":"`+strings.Repeat("x", maxBody)+`"}`); w.Code != 400 {
		t.Errorf("a request of more than 1 MiB is answered %d; want 400", w.Code)
	}
}

func TestConfigOf(t *testing.T) {
	link, table := scopeLink, 100
	res := &agentapi.Result{
		IPs: []agentapi.IP{
			{Address: netip.MustParsePrefix("10.0.0.7/24"), Gateway: netip.MustParseAddr("10.0.0.1")},
			{Address: netip.MustParsePrefix("fd00::7/64")},
		},
		Routes: []agentapi.Route{
			{Dst: netip.MustParsePrefix("0.0.0.0/0")},
			{Dst: netip.MustParsePrefix("10.1.0.0/16"), GW: netip.MustParseAddr("10.0.0.9"), Table: &table},
			{Dst: netip.MustParsePrefix("10.2.0.0/16"), Scope: &link},
			{Dst: netip.MustParsePrefix("fd01::/16")},
		},
	}
	mtu := int32(9000)
	want := NetworkConfig{
		Interface: Interface{Addresses: []string{"10.0.0.7/24", "fd00::7/64"}, MTU: &mtu},
		Routes: []Route{
			{Destination: "0.0.0.0/0", Gateway: "10.0.0.1"},
			{Destination: "10.1.0.0/16", Gateway: "10.0.0.9", Table: 100},
			{Destination: "10.2.0.0/16", Scope: 253},
			{Destination: "fd01::/16", Scope: 253},
		},
	}
	if d := cmp.Diff(want, configOf(res, 9000)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestMTUOf(t *testing.T) {
	for text, want := range map[string]int32{
		`{"mtu":1400,"ipam":{"type":"tenure"}}`:                                          1400,
		`{"plugins":[{"mtu":1,"ipam":{"type":"x"}},{"mtu":9,"ipam":{"type":"tenure"}}]}`: 9,
		`{"mtu":7,"plugins":[{"ipam":{"type":"tenure"}}]}`:                               0,
		`{"ipam":{"type":"tenure"}}`:                                                     0,
		`{"mtu":"large","ipam":{"type":"tenure"}}`:                                       0,
	} {
		if got := mtuOf([]byte(text)); got != want {
			t.Errorf("%s: %d; want %d", text, got, want)
		}
	}
}
