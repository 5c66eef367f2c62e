package cniresults

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func cached(config, result string) string {
	return fmt.Sprintf(`{"kind":"cniCacheV1","containerId":"c1","config":%q,"ifName":"net1","networkName":"lan","netns":"/run/netns/x",`+
		`"cniArgs":[["IgnoreUnknown","1"],["K8S_POD_NAME","p"]],"capabilityArgs":{"mac":"x"},"result":%s}`,
		base64.StdEncoding.EncodeToString([]byte(config)), result)
}

func TestEntries(t *testing.T) {
	const one = `{"cniVersion":"1.0.0","name":"lan","type":"bridge","ipam":{"type":"tenure","pool":"p"}}`
	const list = `{"cniVersion":"1.1.0","name":"lan","plugins":[{"type":"bridge","ipam":{"type":"tenure"}},{"type":"tuning"}]}`
	v4 := IP{Address: netip.MustParsePrefix("10.0.0.5/24"), Gateway: netip.MustParseAddr("10.0.0.1")}
	v6 := IP{Address: netip.MustParsePrefix("fd00::5/64")}
	for _, tt := range []struct {
		name, text string
		ips        []IP
		ipam       int
		fault      string
	}{
		{name: "a network", text: cached(one, `{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.5/24","gateway":"10.0.0.1","interface":2},{"address":"fd00::5/64"}]}`), ips: []IP{v4, v6}, ipam: 1},
		{name: "a list", text: cached(list, `{"ips":[{"address":"fd00::5/64"}]}`), ips: []IP{v6}, ipam: 1},
		{name: "0.2.0", text: cached(one, `{"ip4":{"ip":"10.0.0.5/24","gateway":"10.0.0.1"},"ip6":{"ip":"fd00::5/64"}}`), ips: []IP{v4, v6}, ipam: 1},
		{name: "no addresses", text: cached(`{"name":"lo","type":"loopback"}`, `{}`)},
		{name: "another kind", text: `{"kind":"cniCacheV9","containerId":"c1","ifName":"net1","networkName":"lan"}`, fault: "kind"},
		{name: "no key", text: `{"kind":"cniCacheV1","containerId":"c1","networkName":"lan"}`, fault: "missing"},
		{name: "no address", text: cached(one, `{"ips":[{"address":"10.0.0.5"}]}`), fault: "10.0.0.5"},
		{name: "mapped with a long prefix", text: cached(one, `{"ips":[{"address":"::ffff:10.0.0.5/120"}]}`), fault: "prefix length"},
		{name: "no configuration", text: cached(`[]`, `{}`), fault: "config"},
		{name: "no JSON", text: `{`, fault: "unexpected end"},
		{name: "nothing", text: ``, fault: "EOF"},
		{name: "no result", text: `{"kind":"cniCacheV1","containerId":"c1","ifName":"net1","networkName":"lan"}`, fault: "result"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all, err := entries(parseRecords([]byte(tt.text)))
			if tt.fault != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fault) {
					t.Errorf("got %v; want an error about %q", err, tt.fault)
				}
				return
			}
			if err != nil || len(all) != 1 {
				t.Fatalf("got %v, %v; want one entry", all, err)
			}
			e := all[0]
			if e.Network != "lan" || e.ContainerID != "c1" || e.IfName != "net1" || e.Netns != "/run/netns/x" || e.Args != "IgnoreUnknown=1;K8S_POD_NAME=p" {
				t.Errorf("got %+v", e)
			}
			if !reflect.DeepEqual(e.IPs, tt.ips) || len(e.IPAM) != tt.ipam {
				t.Errorf("got addresses %v and %d configurations; want %v and %d", e.IPs, len(e.IPAM), tt.ips, tt.ipam)
			}
		})
	}
}

func TestPluginsHaveNameAndVersion(t *testing.T) {
	got, err := plugins([]byte(`{"cniVersion":"1.1.0","name":"x","plugins":[{"type":"bridge","ipam":{"type":"tenure"}}]}`), "lan")
	if err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	var conf struct{ Name, CNIVersion, Type string }
	if err := json.Unmarshal(got[0], &conf); err != nil {
		t.Fatal(err)
	}
	if conf.Name != "lan" || conf.CNIVersion != "1.1.0" || conf.Type != "bridge" {
		t.Errorf("got %+v", conf)
	}
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"lan-c1-net1": cached(`{"name":"lan","type":"bridge","ipam":{"type":"tenure"}}`, `{"ips":[{"address":"10.0.0.5/24"}]}`),
		"old":         `{"cniVersion":"0.3.1","ips":[]}`,
		"large":       strings.Repeat(" ", maxSize+1),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "directory"), 0o700); err != nil {
		t.Fatal(err)
	}
	entries, unread, err := Read([]string{dir, filepath.Join(dir, "absent")})
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 || entries[0].Written.IsZero() || len(unread) != 2 {
		t.Errorf("got %+v and %v; want one entry and two files that do not read", entries, unread)
	}
}

func FuzzEntries(f *testing.F) {
	f.Add([]byte(cached(`{"name":"lan","type":"bridge","ipam":{"type":"tenure"}}`, `{"ips":[{"address":"10.0.0.5/24","gateway":"10.0.0.1"}]}`)))
	f.Add([]byte(cached(`{"plugins":[{"ipam":{}}]}`, `{"ip4":{"ip":"10.0.0.5/24"}}`)))
	f.Add([]byte(`{"kind":"cniCacheV1"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		all, _ := entries(parseRecords(text))
		for _, e := range all {
			checkEntry(t, e)
		}
	})
}

// checkEntry checks what is true of an entry whatever a file has.
func checkEntry(t *testing.T, e Entry) {
	t.Helper()
	if e.Network == "" || e.ContainerID == "" || e.IfName == "" {
		t.Errorf("%+v has no key", e)
	}
	for _, ip := range e.IPs {
		if !ip.Address.IsValid() || ip.Address.Addr().Is4In6() || ip.Gateway.Is4In6() || ip.Gateway.Zone() != "" {
			t.Errorf("%+v is no address of a result", ip)
		}
	}
	for _, conf := range e.IPAM {
		if !json.Valid(conf) {
			t.Errorf("%q is no configuration", conf)
		}
	}
}

// TestRecords: a file may have a line for each attachment; the last one of an
// interface counts, and a line whose writer was killed keeps none of the others back.
func TestRecords(t *testing.T) {
	var text []byte
	for i, r := range []Record{
		{ContainerID: "c", NetworkName: "a", IfName: "net1", Result: json.RawMessage("{\n}")},
		{ContainerID: "c", NetworkName: "b", IfName: "net2"},
		{ContainerID: "c", NetworkName: "a", IfName: "net1", NetNS: "later", Result: json.RawMessage("{}")},
	} {
		line, err := r.Line()
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, line...)
		if lines := bytes.Count(text, []byte("\n")); lines != i+1 {
			t.Fatalf("%d lines of %d records: %s", lines, i+1, text)
		}
	}
	// A record that is damaged costs no other.
	damaged := bytes.Replace(text, []byte(`"networkName":"b"`), []byte(`"networkName":"`), 1)
	if all, err := parseRecords(damaged); err == nil || len(all) != 1 || all[0].NetNS != "later" {
		t.Errorf("of a damaged record and one that is whole: %v, %v; want the one that is whole, and an error", all, err)
	}
	for _, tt := range []struct {
		cut  int // bytes missing at the end
		want string
		bad  bool
	}{{0, "b: a:later", false}, {2, "a: b:", true}, {len(text), "", true}} {
		all, err := parseRecords(text[:len(text)-tt.cut])
		var got []string
		for _, r := range all {
			got = append(got, r.NetworkName+":"+r.NetNS)
		}
		if strings.Join(got, " ") != tt.want || (err != nil) != tt.bad {
			t.Errorf("without %d bytes: %v, %v; want %q", tt.cut, got, err, tt.want)
		}
	}
}

// TestReadWhateverTheInterfaceIsCalled: what the meta-plugin is writing is no entry. A result of
// the CNI library is, though its file ends like that by the name of the pod's interface.
func TestReadWhateverTheInterfaceIsCalled(t *testing.T) {
	const config, result = `{"name":"lan","type":"bridge","ipam":{"type":"whereabouts"}}`, `{"ips":[{"address":"10.0.0.5/24"}]}`
	for name, is := range map[string]bool{
		"lan-c1-net1":                     true,
		"lan-c1-x.tmp":                    true,
		"lan-c1-.tmp":                     true,
		"lan-c1-x.0123456789.tmp":         true,
		"c1.net1.0123456789abcdef":        true,
		"c1.net1.0123456789abcdef.tmp":    false,
		"lan-c1-x.0123456789abcdeg.tmp":   true,
		"lan-c1-x0123456789abcdef.tmp":    true,
		"lan-0123456789abcdef-a.x.tmp":    true,
		"c1.a.b.tmp.fedcba9876543210":     true,
		"c1.a.b.tmp.fedcba9876543210.tmp": false,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(cached(config, result)), 0o600); err != nil {
			t.Fatal(err)
		}
		all, unread, err := Read([]string{dir})
		if err != nil || len(unread) > 0 || (len(all) == 1) != is {
			t.Errorf("%s: got %v, %v, %v; is it an entry: want %t", name, all, unread, err, is)
		}
	}
}
