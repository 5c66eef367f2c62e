package neutron

import (
	"cmp"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// keystone is a Keystone that lets everybody in, to project "mine", and a Neutron that lists the
// same ports, networks and subnets to all.
type keystone struct {
	url     string
	ports   []string
	made    []string // networks and subnets
	deleted []string // their paths
}

// client returns a client that logs in there.
func (k *keystone) client(t *testing.T) *Client {
	t.Helper()
	server := httptest.NewServer(k)
	t.Cleanup(server.Close)
	k.url = server.URL
	cfg := DefaultConfig()
	cfg.Clouds, cfg.Cloud, cfg.Cluster = fmt.Appendf(nil, `clouds: {os: {region_name: R, auth_type: v3applicationcredential, auth: {
		auth_url: %q, application_credential_id: a, application_credential_secret: b}}}`, server.URL+"/v3"), "os", "here"
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (k *keystone) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case strings.HasSuffix(r.URL.Path, "/auth/tokens"):
		w.Header().Set("X-Subject-Token", "token")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"token": {"project": {"id": "mine"}, "catalog": [{"type": "network", "name": "neutron", "endpoints": [{"interface": "public", "region": "R", "region_id": "R", "url": %q}]}]}}`, k.url)
	case r.URL.Path == "/":
		fmt.Fprintf(w, `{"versions": [{"id": "v2.0", "status": "CURRENT", "links": [{"rel": "self", "href": "%s/v2.0/"}]}]}`, k.url)
	case r.Method == http.MethodDelete:
		k.deleted = append(k.deleted, strings.TrimPrefix(r.URL.Path, "/v2.0/"))
		w.WriteHeader(http.StatusNoContent)
	default:
		kind := strings.TrimPrefix(r.URL.Path, "/v2.0/")
		all := map[string][]string{"ports": k.ports, "networks": k.made, "subnets": k.made}[kind]
		if r.URL.Query().Has("marker") {
			all = nil
		}
		fmt.Fprintf(w, `{%q: [%s]}`, kind, strings.Join(all, ","))
	}
}

// TestPortsThatNameMachines: who may make ports on a network may name any machine in one. Where
// machines have ports of the project of the credentials, these are the machines'. Where none has,
// and one has some of several projects, nobody knows which is its own.
func TestPortsThatNameMachines(t *testing.T) {
	port := func(id, server, project string) string {
		return fmt.Sprintf(`{"id": %q, "device_id": %q, "device_owner": "compute:nova", "network_id": "net", "project_id": %q}`, id, server, project)
	}
	for what, test := range map[string]struct {
		ports []string
		want  []string // "!" is of those that are in doubt
	}{
		"of our project":      {[]string{port("1", "a", "mine"), port("2", "a", "mine")}, []string{"1", "2"}},
		"of another alone":    {[]string{port("1", "a", "theirs"), port("2", "b", "theirs")}, []string{"1", "2"}},
		"of another for one":  {[]string{port("1", "a", "theirs"), port("2", "b", "mine")}, []string{"2"}},
		"of ours and another": {[]string{port("1", "a", "theirs"), port("2", "a", "mine")}, []string{"2"}},
		"of two others":       {[]string{port("1", "a", "theirs"), port("2", "a", "others"), port("3", "b", "others")}, []string{"!1", "!2", "3"}},
	} {
		t.Run(what, func(t *testing.T) {
			c := (&keystone{ports: test.ports}).client(t)
			found, err := c.PortsOfServers(t.Context(), "net", []string{"a", "b"})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range found {
				got = append(got, map[bool]string{true: "!"}[p.Doubt != nil]+p.ID)
			}
			slices.SortFunc(got, func(a, b string) int { return cmp.Compare(strings.Trim(a, "!"), strings.Trim(b, "!")) })
			if !slices.Equal(got, test.want) {
				t.Errorf("the machines' ports are %q; want %q", got, test.want)
			}
		})
	}
}

// TestWhatOthersSayIsOurs: any project may write on its ports that they are of this cluster, and of
// a claim, and on networks that it shares with ours. What another project has made is not ours.
func TestWhatOthersSayIsOurs(t *testing.T) {
	port := func(id, project string) string {
		return fmt.Sprintf(`{"id": "%s", "device_id": "claim", "device_owner": "tenure:here", "network_id": "net", "project_id": %q,
			"fixed_ips": [{"subnet_id": "s", "ip_address": "10.0.0.%[1]s"}]}`, id, project)
	}
	k := &keystone{ports: []string{port("1", "theirs"), port("2", "mine")}, made: []string{
		`{"id": "1", "description": "tenure:here theirs", "network_id": "1", "project_id": "theirs"}`,
		`{"id": "2", "description": "tenure:here lab", "network_id": "2", "project_id": "theirs"}`,
		`{"id": "3", "description": "tenure:here lab", "network_id": "3", "project_id": "mine"}`,
	}}
	c := k.client(t)
	ours, err := c.Ours(t.Context())
	if err != nil || len(ours) != 1 || ours[0].ID != "2" {
		t.Errorf("our ports are %+v, %v; want 2 alone", ours, err)
	}
	chosen, err := c.Ensure(t.Context(), Want{Claim: "claim", Network: "net", Addresses: []FixedIP{{Subnet: "s"}}})
	if err != nil || chosen.ID != "2" || len(chosen.Surplus) > 0 {
		t.Errorf("the claim's port is %+v, %v; want 2, and none too many", chosen, err)
	}
	if keys, err := c.SubnetKeys(t.Context()); err != nil || !slices.Equal(keys, []string{"lab"}) {
		t.Errorf("subnets are made for %q, %v; want lab", keys, err)
	}
	if id, err := c.EnsureSubnet(t.Context(), NewSubnet{Key: "lab", Prefix: netip.MustParsePrefix("10.0.0.0/24")}); err != nil || id != "3" {
		t.Errorf("the subnet is %q, %v; want 3", id, err)
	}
	if err := c.DeleteSubnet(t.Context(), "lab"); err != nil || !slices.Equal(k.deleted, []string{"subnets/3", "networks/3"}) {
		t.Errorf("deleted are %q, %v; want ours", k.deleted, err)
	}
}
