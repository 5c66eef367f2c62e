package neutron_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	neutron "github.com/tenure-ipam/tenure/ipam/controller/neutron"
	server "github.com/tenure-ipam/tenure/test/neutron"
	"github.com/tenure-ipam/tenure/test/sandbox"
)

func TestMain(m *testing.M) { os.Exit(sandbox.Main(sandbox.Options{}, m.Run)) }

// Projects of tenants.
const (
	mine   = "11111111111111111111111111111111"
	others = "22222222222222222222222222222222"
)

// tenant has requests be those of an ordinary member of a project.
var tenant = server.As("somebody", mine, "member,reader")

// client returns a client of the Neutron at url, with a patience for a busy machine. Change
// may change its configuration.
func client(t *testing.T, url string, change ...func(*neutron.Config)) *neutron.Client {
	t.Helper()
	cfg := neutron.DefaultConfig()
	cfg.CallTimeout, cfg.Timeout = time.Minute, 2*time.Minute
	cfg.Clouds = fmt.Appendf(nil, "clouds: {test: {auth_type: none, auth: {endpoint: %q}}}", url)
	cfg.Cloud, cfg.Cluster = "test", "here"
	for _, c := range change {
		c(&cfg)
	}
	c, err := neutron.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// fails checks that err is an error of a reason, and that its message has words.
func fails(t *testing.T, err error, reason neutron.Reason, words ...string) {
	t.Helper()
	e, ok := errors.AsType[*neutron.Error](err)
	if !ok || e.Reason != reason {
		t.Fatalf("error %#v; want one with reason %s", err, reason)
	}
	for _, w := range words {
		if !strings.Contains(e.Message, w) {
			t.Errorf("message %q; want it to have %q", e.Message, w)
		}
	}
}

// only checks that the claim has one port, which is p, and that p has no surplus.
func only(t *testing.T, s *server.Server, claim string, p neutron.Port) {
	t.Helper()
	found := s.Ports(t, claim)
	if len(found) != 1 || found[0].ID != p.ID || len(p.Surplus) != 0 {
		t.Errorf("claim %s has ports %v, and was told of %s with surplus %v; want that one alone", claim, found, p.ID, p.Surplus)
	}
}
