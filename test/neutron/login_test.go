package neutron_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	neutron "github.com/tenure-ipam/tenure/ipam/controller/neutron"
	server "github.com/tenure-ipam/tenure/test/neutron"
)

// issuer stands for Keystone, of which it has what a login by application credentials needs:
// it issues tokens, and tells which of them is still good. The Neutron behind is real.
type issuer struct {
	url, neutron string

	mu     sync.Mutex
	issued int
	good   string // the token that is accepted; empty: none
	away   bool   // it answers 503
}

func newIssuer(t *testing.T) *issuer {
	i := &issuer{}
	s := httptest.NewServer(i)
	t.Cleanup(s.Close)
	i.url = s.URL + "/v3"
	return i
}

// ServeHTTP issues a token to who knows the secret.
func (i *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	var asked struct {
		Auth struct {
			Identity struct {
				Credential struct{ ID, Secret string } `json:"application_credential"`
			}
		}
	}
	err := json.NewDecoder(r.Body).Decode(&asked)
	switch c := asked.Auth.Identity.Credential; {
	case i.away:
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case err != nil || r.URL.Path != "/v3/auth/tokens" || c.ID != "tenure" || c.Secret != "right":
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	i.issued++
	i.good = fmt.Sprintf("token-%d", i.issued)
	w.Header().Set("X-Subject-Token", i.good)
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"token": {"catalog": [{"type": "network", "name": "neutron", "endpoints": [
		{"interface": "public", "region": "R", "region_id": "R", "url": %q}]}]}}`, i.neutron)
}

// set changes i while it serves.
func (i *issuer) set(change func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	change()
}

// asks refuses a request without a good token, as Neutron's own filter does that asks Keystone.
func (i *issuer) asks(w http.ResponseWriter, r *http.Request) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if r.URL.Path != "/" && r.Header.Get("X-Auth-Token") != i.good {
		w.WriteHeader(http.StatusUnauthorized)
		return true
	}
	return false
}

// login: the client logs in by application credentials when it is first used, finds Neutron by
// the catalog, and logs in again when its token ends.
func login(t *testing.T, c cloud) {
	n := c.network(t, "192.0.2.0/24")
	i := newIssuer(t)
	i.neutron = c.Open(t, &server.Door{By: tenant, Instead: i.asks}).URL
	as := func(secret string) *neutron.Client {
		return client(t, "", func(cfg *neutron.Config) {
			cfg.Clouds = fmt.Appendf(nil, `clouds: {test: {region_name: R, auth_type: v3applicationcredential, auth: {
				auth_url: %q, application_credential_id: tenure, application_credential_secret: %s}}}`, i.url, secret)
		})
	}
	_, err := as("wrong").Ours(t.Context())
	fails(t, err, neutron.Unauthorized, "clouds.yaml")

	right := as("right")
	w := neutron.Want{Claim: named(t, 1), Network: n.ID}
	for tokens := 1; tokens <= 2; tokens++ {
		p, err := right.Ensure(t.Context(), w)
		if err != nil {
			t.Fatal(err)
		}
		only(t, c.Server, w.Claim, p)
		if i.issued != tokens {
			t.Errorf("%d tokens were issued; want %d", i.issued, tokens)
		}
		i.set(func() { i.good = "" })
	}
	i.set(func() { i.away = true })
	_, err = right.Ensure(t.Context(), w)
	fails(t, err, neutron.Unavailable, "renew the token")
}
