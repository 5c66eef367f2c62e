package neutron

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// Admin is the project of an administrator's requests by [Server.Do]. It is also that of
// requests to a server without tenants.
const Admin = "fake_project_id"

// Network is a network to make. The zero value is one without subnets, of the
// administrator's project.
type Network struct {
	ID      string `json:"id,omitempty"` // filled in
	Project string `json:"project_id,omitempty"`
	Shared  bool   `json:"shared,omitempty"`

	Subnets []Subnet `json:"-"`
}

// Subnet is a subnet to make, in Neutron's words. It has no DHCP.
type Subnet struct {
	ID        string              `json:"id,omitempty"`         // filled in
	NetworkID string              `json:"network_id,omitempty"` // filled in
	CIDR      string              `json:"cidr"`
	IPVersion int                 `json:"ip_version,omitempty"` // 0 is 4
	Gateway   string              `json:"gateway_ip,omitempty"` // empty: the first address
	Pools     []map[string]string `json:"allocation_pools,omitempty"`
	DNS       []string            `json:"dns_nameservers,omitempty"`
	Routes    []map[string]string `json:"host_routes,omitempty"`
	Project   string              `json:"project_id,omitempty"`
	DHCP      bool                `json:"enable_dhcp"`
}

// Port is a port, in Neutron's words.
type Port struct {
	ID          string              `json:"id,omitempty"`
	NetworkID   string              `json:"network_id,omitempty"`
	DeviceID    string              `json:"device_id,omitempty"`
	DeviceOwner string              `json:"device_owner,omitempty"`
	MAC         string              `json:"mac_address,omitempty"`
	Pairs       []map[string]string `json:"allowed_address_pairs,omitempty"`
	FixedIPs    []map[string]string `json:"fixed_ips,omitempty"`
	Tags        []string            `json:"tags,omitempty"`
	Groups      []string            `json:"security_groups,omitempty"`
}

// Network makes a network and its subnets, as administrator, and returns it with its IDs.
func (s *Server) Network(t testing.TB, n Network) Network {
	t.Helper()
	s.Do(t, http.MethodPost, "networks", "network", n, &n)
	subnets := n.Subnets
	n.Subnets = nil
	for _, sub := range subnets {
		sub.NetworkID = n.ID
		if sub.IPVersion == 0 {
			sub.IPVersion = 4
		}
		s.Do(t, http.MethodPost, "subnets", "subnet", sub, &sub)
		n.Subnets = append(n.Subnets, sub)
	}
	return n
}

// Port makes a port, as administrator, and returns it as Neutron does.
func (s *Server) Port(t testing.TB, p Port) Port {
	t.Helper()
	s.Do(t, http.MethodPost, "ports", "port", p, &p)
	return p
}

// Ports returns the ports with a device_id, or all with an empty one.
func (s *Server) Ports(t testing.TB, deviceID string) (all []Port) {
	t.Helper()
	for marker := ""; ; {
		var page []Port
		q := url.Values{"sort_key": {"id"}, "sort_dir": {"asc"}, "limit": {"10"}}
		if deviceID != "" {
			q.Set("device_id", deviceID)
		}
		if marker != "" {
			q.Set("marker", marker)
		}
		err := s.do(t, http.MethodGet, "ports?"+q.Encode(), "ports", nil, &page)
		if marker != "" && err != nil && strings.Contains(err.Error(), "PortNotFound") { // it was deleted: begin anew
			all, marker = nil, ""
			continue
		}
		if err != nil {
			t.Fatalf("list ports: %v", err)
		}
		if len(page) == 0 {
			return all
		}
		all, marker = append(all, page...), page[len(page)-1].ID
	}
}

// Quota sets how many ports a project may have; -1 is without bound.
func (s *Server) Quota(t testing.TB, project string, ports int) {
	t.Helper()
	s.Do(t, http.MethodPut, "quotas/"+project, "quota", map[string]int{"port": ports}, nil)
}

// Do makes a request of the API as administrator: of path below v2.0, with body, if not nil,
// under the key of the object, whose value in the answer goes to answer, if not nil. What is
// no success fails the test.
func (s *Server) Do(t testing.TB, method, path, key string, body, answer any) {
	t.Helper()
	if err := s.do(t, method, path, key, body, answer); err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
}

// Try is [Server.Do] of a request without a body that may fail.
func (s *Server) Try(t testing.TB, method, path string, answer any) error {
	t.Helper()
	return s.do(t, method, path, "", nil, answer)
}

func (s *Server) do(t testing.TB, method, path, key string, body, answer any) error {
	var sent io.Reader
	if body != nil {
		text, err := json.Marshal(map[string]any{key: body})
		if err != nil {
			return err
		}
		sent = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL()+"/v2.0/"+path, sent)
	if err != nil {
		return err
	}
	s.admin()(r)
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("%s: %s", resp.Status, text)
	}
	if answer == nil {
		return nil
	}
	var keyed map[string]json.RawMessage
	if err := json.Unmarshal(text, &keyed); err != nil {
		return err
	}
	return json.Unmarshal(keyed[key], answer)
}
