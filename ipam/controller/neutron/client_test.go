package neutron

import (
	"strings"
	"testing"
)

// TestNew: what is wrong with a configuration is said before anything is asked.
func TestNew(t *testing.T) {
	const keystone = "clouds: {os: {auth: {auth_url: 'https://keystone.example/v3', application_credential_id: a, application_credential_secret: b}}}"
	for _, tt := range []struct {
		name, clouds, cloud string
		change              func(*Config)
		want                string // in the error; empty: none
	}{
		{"application credentials", keystone, "os", nil, ""},
		{"no authentication", "clouds: {os: {auth_type: none, auth: {endpoint: 'http://neutron.example:9696'}}}", "os", nil, ""},
		{"no such cloud", keystone, "other", nil, `no cloud "other"`},
		{"no YAML", "clouds: [", "os", nil, "clouds.yaml: "},
		{"no clouds", "", "os", nil, `no cloud "os"`},
		{"no authentication and no endpoint", "clouds: {os: {auth_type: none}}", "os", nil, "auth.endpoint is empty"},
		{"no Keystone", "clouds: {os: {auth: {username: a}}}", "os", nil, "auth.auth_url is empty"},
		{"a certificate that is not there", "clouds: {os: {cacert: /nowhere, auth: {auth_url: 'https://keystone.example'}}}", "os", nil, "/nowhere"},
		{"no cluster", keystone, "os", func(c *Config) { c.Cluster = "" }, "Cluster is empty"},
		{"no time", keystone, "os", func(c *Config) { c.CallTimeout = 0 }, "CallTimeout is 0s"},
		{"a call that outlasts the timeout", keystone, "os", func(c *Config) { c.Timeout = c.CallTimeout - 1 }, "Timeout no shorter"},
		{"negative retries", keystone, "os", func(c *Config) { c.Retries = -1 }, "Retries is -1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := DefaultConfig()
			cfg.Clouds, cfg.Cloud, cfg.Cluster = []byte(tt.clouds), tt.cloud, "here"
			if tt.change != nil {
				tt.change(&cfg)
			}
			c, err := New(cfg)
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("error %v; want one with %q", err, tt.want)
			case err == nil && c.endpoint == "" && (c.auth.ApplicationCredentialSecret != "b" || !c.auth.AllowReauth):
				t.Errorf("it logs in by %+v; want the application credentials, and tokens to be renewed", c.auth)
			}
		})
	}
}
