package install

import (
	"strings"
	"testing"
)

// TestSkew: agents and controllers may be one minor version apart, in either direction, and no
// more; nor may this program be further from them.
func TestSkew(t *testing.T) {
	for _, tt := range []struct {
		name, client, agents, controllers string
		want                              []string // words of each warning
	}{
		{"all the same", "v0.9.0", "v0.9.0", "v0.9.0", nil},
		{"agents one before", "v0.9.0", "v0.8.3 v0.9.0", "v0.9.0", nil},
		{"controllers one before", "v0.9.0", "v0.9.0", "v0.8.0", nil},
		{"patches, and what comes before a release", "v0.9.0-rc.1", "v0.9.17", "v0.9.2", nil},
		{"after a tag", "v0.9.0-12-g0a1b2c3", "v0.10.0", "v0.10.0", nil},
		{"what is no version", "development", "dev next", "v0.9.0 sha256:12", nil},
		{"agents two before", "v0.9.0", "v0.7.1 v0.8.0", "v0.9.0", []string{"agents v0.7.1 on 1 node do not fit controllers v0.9.0", "this kubectl tenure is v0.9.0 and there are agents v0.7.1"}},
		{"agents two after", "v0.9.0", "v0.9.0", "v0.7.0", []string{"agents v0.9.0 on 1 node do not fit controllers v0.7.0", "there are controllers v0.7.0"}},
		{"agents two apart", "v0.9.0", "v0.10.0 v0.8.0", "v0.9.0", []string{"agents v0.10.0 on 1 node and agents v0.8.0 on 1 node do not fit"}},
		{"another major version", "v1.9.0", "v2.9.0", "v2.9.0", []string{"there are agents v2.9.0", "there are controllers v2.9.0"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := versionsView{Client: tt.client}
			for a := range strings.FieldsSeq(tt.agents) {
				v.Agents = append(v.Agents, versionView{Version: a, Nodes: 1})
			}
			for c := range strings.FieldsSeq(tt.controllers) {
				v.Controllers = append(v.Controllers, versionView{Version: c, Pods: 1})
			}
			got := skew(v)
			if len(got) != len(tt.want) {
				t.Fatalf("it warns %q; want %q", got, tt.want)
			}
			for i, want := range tt.want {
				if !strings.Contains(got[i], want) {
					t.Errorf("it warns %q; want %q", got[i], want)
				}
			}
		})
	}
}

func TestTagOf(t *testing.T) {
	for image, want := range map[string]string{
		"tenured": "latest", "registry.example:5000/net/tenured": "latest", "registry.example:5000/net/tenured:v0.9.0": "v0.9.0",
		"registry.example/tenured:v0.9.0@sha256:12": "v0.9.0", "registry.example/tenured@sha256:12": "sha256:12",
	} {
		if got := tagOf(image); got != want {
			t.Errorf("%s has tag %s; want %s", image, got, want)
		}
	}
}
