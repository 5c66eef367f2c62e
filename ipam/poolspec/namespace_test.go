package poolspec

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// sourcesOf returns the sources of an ipam section.
func sourcesOf(t *testing.T, ipam string) []Source {
	t.Helper()
	c, err := ParseConfig([]byte(`{"cniVersion": "1.0.0", "name": "lan", "type": "macvlan", "ipam": {"type": "tenure", `+ipam+`}}`), "")
	if err != nil {
		t.Fatal(err)
	}
	return c.Sources
}

// poolsOf names the pools of sources, and in brackets the labels that are to name them.
func poolsOf(sources []Source) (text string) {
	for _, s := range sources {
		if text += " " + s.Pool; s.Pool == "" {
			text += "[" + s.ByNamespace + "]"
		}
	}
	return strings.TrimSpace(text)
}

func TestPoolsByNamespace(t *testing.T) {
	labels := map[string]string{"tenure.dev/pool": "a", "tenure.dev/pool6": "six", "upper": "A_b", "again": "a"}
	for _, tt := range []struct {
		ipam, read, found, fault string
	}{
		{`"pools": {"byNamespace": "tenure.dev/pool"}`, "[tenure.dev/pool]", "a", ""},
		{`"pools": [{"byNamespace": "tenure.dev/pool"}, {"byNamespace": "tenure.dev/pool6"}]`, "[tenure.dev/pool] [tenure.dev/pool6]", "a six", ""},
		{`"pools": ["shared", {"byNamespace": "tenure.dev/pool"}]`, "shared [tenure.dev/pool]", "shared a", ""},
		{`"pool": "shared", "pools": {"byNamespace": "tenure.dev/pool"}`, "shared [tenure.dev/pool]", "shared a", ""},
		{
			`"pools": {"byNamespace": "lan"}`, "[lan]", "",
			"label lan of namespace team-a is to name its pool, and is not there: kubectl label namespace team-a lan=POOL",
		},
		{
			`"pools": {"byNamespace": "upper"}`, "[upper]", "",
			`label upper of namespace team-a is to name its pool, and "A_b" cannot be a pool's name: kubectl label --overwrite namespace team-a upper=POOL`,
		},
		{
			`"pools": [{"byNamespace": "tenure.dev/pool"}, {"byNamespace": "again"}]`, "[tenure.dev/pool] [again]", "",
			"label again of namespace team-a is to name its pool, and names pool a, of which the network gives an address already: name each pool once",
		},
	} {
		sources := sourcesOf(t, tt.ipam)
		if got := poolsOf(sources); got != tt.read || !ByNamespace(sources) {
			t.Errorf("%s is read as %s; want %s", tt.ipam, got, tt.read)
		}
		found, err := OfNamespace(sources, "team-a", labels)
		if _, ok := errors.AsType[*NamespaceError](err); err != nil && (!ok || err.Error() != tt.fault) || err == nil && tt.fault != "" {
			t.Errorf("%s: error %v; want %s", tt.ipam, err, tt.fault)
		}
		if got := poolsOf(found); got != tt.found || ByNamespace(found) {
			t.Errorf("%s: found %s; want %s", tt.ipam, got, tt.found)
		}
		if got := poolsOf(sources); got != tt.read {
			t.Errorf("%s: the sources have become %s", tt.ipam, got)
		}
	}
	if _, err := OfNamespace(sourcesOf(t, `"pools": {"byNamespace": "lan"}`), "", nil); err == nil || !strings.Contains(err.Error(), "K8S_POD_NAMESPACE") {
		t.Errorf("without a namespace: %v", err)
	}
	if ByNamespace(sourcesOf(t, `"pool": "a"`)) {
		t.Error("a named pool is looked for")
	}
}

func TestFaultsOfPoolsByNamespace(t *testing.T) {
	for ipam, want := range map[string][]string{
		`"pools": {}`:                         {"ipam.pools.byNamespace: is missing"},
		`"pools": {"byNamespace": ""}`:        {"ipam.pools.byNamespace: is missing"},
		`"pools": {"byNamespace": 5}`:         {"ipam.pools.byNamespace: is a number, not a string", "ipam.pools.byNamespace: is missing"},
		`"pools": {"byNamespace": "a b"}`:     {`ipam.pools.byNamespace: "a b" cannot be the key of a label`},
		`"pools": {"byNamespace": "A.b/c/d"}`: {`ipam.pools.byNamespace: "A.b/c/d" cannot be the key of a label`},
		`"pools": {"byNameSpaces": "x"}`: {
			`ipam.pools.byNameSpaces: is not a key that Tenure knows: "x"`, "ipam.pools.byNamespace: is missing",
		},
		`"pools": [{"byNamespace": "x"}, {"byNamespace": "x"}]`: {`ipam.pools[1]: "x" is named twice`},
		`"pools": "a"`: {"ipam.pools: is a string, not a list"},
		`"mode": "local", "pools": {"byNamespace": "x"}`: {"ipam.pools: names a pool, which only a cluster has"},
	} {
		_, err := ParseConfig([]byte(`{"cniVersion": "1.0.0", "name": "lan", "type": "macvlan", "ipam": {"type": "tenure", `+ipam+`}}`), "")
		var got []string
		for _, f := range faultsOf(t, err) {
			got = append(got, f.Path+": "+f.Problem)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s:\n got %q\nwant %q", ipam, got, want)
		}
	}
}

// TestInPools: an interface keeps its pools, if there is no doubt which they are.
func TestInPools(t *testing.T) {
	sources := sourcesOf(t, `"pools": [{"byNamespace": "x"}, "shared", {"byNamespace": "y"}]`)
	for _, tt := range []struct {
		pools []string
		want  string
	}{
		{[]string{"a", "shared", "b"}, "a shared b"},
		{[]string{"a", "b"}, "a shared b"},
		{[]string{"a", "shared"}, ""},
		{[]string{"a", "b", "c"}, ""},
		{nil, ""},
	} {
		found, ok := InPools(sources, tt.pools)
		if !ok {
			found = nil
		}
		if got := poolsOf(found); got != tt.want || ok != (tt.want != "") {
			t.Errorf("pools %v: found %s; want %s", tt.pools, got, tt.want)
		}
	}
}
