package neutron

import (
	"cmp"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// keystone is a Keystone that lets everybody in, to project "mine", and a Neutron that lists the
// same ports to all.
type keystone struct {
	url   string
	ports []string
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
	case r.URL.Query().Has("marker"):
		fmt.Fprint(w, `{"ports": []}`)
	default:
		fmt.Fprintf(w, `{"ports": [%s]}`, strings.Join(k.ports, ","))
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
			k := &keystone{ports: test.ports}
			server := httptest.NewServer(k)
			defer server.Close()
			k.url = server.URL
			cfg := DefaultConfig()
			cfg.Clouds, cfg.Cloud, cfg.Cluster = fmt.Appendf(nil, `clouds: {os: {region_name: R, auth_type: v3applicationcredential, auth: {
				auth_url: %q, application_credential_id: a, application_credential_secret: b}}}`, server.URL+"/v3"), "os", "here"
			c, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
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
