package neutron

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// unfiltered is a Neutron that gives all subnets and networks, whatever is asked for: it does so
// where an extension is missing that the filter needs.
type unfiltered struct{ deleted []string }

func (u *unfiltered) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	kind := strings.TrimPrefix(r.URL.Path, "/v2.0/")
	if r.Method == http.MethodDelete {
		u.deleted = append(u.deleted, kind)
		w.WriteHeader(http.StatusNoContent)
		return
	}
	var all []string
	if !r.URL.Query().Has("marker") {
		for _, o := range [][2]string{{"1", ""}, {"2", "tenure:here lab"}, {"3", "tenure:here lab2"}, {"4", "tenure:there lab"}} {
			all = append(all, fmt.Sprintf(`{"id": "%s-%s", "description": %q, "network_id": "networks-%[2]s"}`, kind, o[0], o[1]))
		}
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{%q: [%s]}`, kind, strings.Join(all, ","))
}

// TestMadeByDescription: what is taken for a subnet of ours, or deleted as such, says itself that
// it is one. That Neutron lists it is not enough.
func TestMadeByDescription(t *testing.T) {
	var u unfiltered
	server := httptest.NewServer(&u)
	defer server.Close()
	cfg := DefaultConfig()
	cfg.Clouds, cfg.Cloud, cfg.Cluster = fmt.Appendf(nil, "clouds: {os: {auth_type: none, auth: {endpoint: %q}}}", server.URL), "os", "here"
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if id, err := c.EnsureSubnet(t.Context(), NewSubnet{Key: "lab", Prefix: netip.MustParsePrefix("10.0.0.0/24")}); err != nil || id != "subnets-2" {
		t.Errorf("there is subnet %q, %v; want subnets-2", id, err)
	}
	if err := c.DeleteSubnet(t.Context(), "lab"); err != nil {
		t.Fatal(err)
	}
	if want := []string{"subnets/subnets-2", "networks/networks-2"}; !slices.Equal(u.deleted, want) {
		t.Errorf("deleted are %q; want %q", u.deleted, want)
	}
}
