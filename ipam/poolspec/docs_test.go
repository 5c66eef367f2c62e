package poolspec

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const docFile = "../../docs/reference/configuration.md"

// samples has a value for each key of "ipam" that does nothing surprising.
var samples = map[string]string{
	"families": `["IPv4"]`,
	"type":     `"tenure"`, "mode": `"cluster"`, "pool": `"b"`, "pools": `["c"]`, "socket": `"/s"`, "journalDir": `"/j"`, "dataDir": `"/d"`,
	"statusWhenFull": `true`, "routes": `[{"dst": "0.0.0.0/0", "gw": "10.0.0.1", "mtu": 1, "advmss": 1, "priority": 1, "table": 1, "scope": 1}]`,
	"dns":        `{"nameservers": ["10.0.0.1"], "domain": "a", "search": ["b"], "options": ["c"]}`,
	"resolvConf": `"/etc/resolv.conf"`, "name": `"x"`,
	"range": `"10.0.0.0/24"`, "range_start": `"10.0.0.5"`, "range_end": `"10.0.0.9"`, "exclude": `["10.0.0.7"]`, "ipRanges": `[{"range": "10.0.1.0/24"}]`,
	"gateway": `"10.0.0.1"`, "network_name": `"n"`, "enable_overlapping_ranges": `false`, "addresses": `[{"address": "10.0.0.5/24"}]`, "enable_l3": `true`,
	"subnet": `"10.0.0.0/24"`, "rangeStart": `"10.0.0.5"`, "rangeEnd": `"10.0.0.9"`, "ranges": `[[{"subnet": "10.0.1.0/24"}]]`,
}

// member returns the key with a value.
func member(key string) string {
	value, ok := samples[key]
	if !ok {
		value = `"x"`
	}
	return fmt.Sprintf("%q: %s", key, value)
}

// row is one row of a table of keys.
type row struct{ key, treatment string }

// tables returns the rows of the tables below a heading whose first column has
// this title.
func tables(t *testing.T, heading, title string) []row {
	t.Helper()
	text, err := os.ReadFile(docFile)
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(text), "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("no heading %q in %s", heading, docFile)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var rows []row
	inside := false
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			inside = false
			continue
		}
		first, second := strings.TrimSpace(cells[1]), strings.TrimSpace(cells[2])
		switch {
		case first == title && second == "treatment":
			inside = true
		case inside && !strings.HasPrefix(first, "---"):
			rows = append(rows, row{strings.Trim(first, "`"), second})
		}
	}
	if len(rows) == 0 {
		t.Fatalf("no table of %q under %q", title, heading)
	}
	return rows
}

// TestDocumentedKeys keeps the tables of docs/reference/configuration.md and the code in
// step: what a table says of a key is what happens to it.
func TestDocumentedKeys(t *testing.T) {
	known := map[string]key{}
	for _, k := range ipamKeys {
		known[k.name] = k
	}
	documented := map[string]bool{}
	for _, section := range []struct {
		heading, base, defining string
		form                    form
	}{
		{"What can be said in every form", "", "pool", formNamed},
		{"Coming from whereabouts", "", "range", formWhereabouts},
		{"Coming from host-local", `"mode": "local", `, "subnet", formHostLocal},
	} {
		for _, r := range tables(t, section.heading, "key") {
			documented[r.key] = true
			k, ok := known[r.key]
			switch {
			case !ok:
				t.Errorf("%s: the code does not know %s", section.heading, r.key)
				continue
			case k.how.String() != r.treatment:
				t.Errorf("%s: %s is documented as %s, and is %v", section.heading, r.key, r.treatment, k.how)
			case k.forms&section.form == 0:
				t.Errorf("%s: %s does not belong to %v", section.heading, r.key, section.form)
			}
			if r.key == "dataDir" && section.form == formNamed {
				continue // honoured in local mode, which has no named pools
			}
			ipam := section.base + member(r.key)
			if r.key != section.defining {
				ipam += ", " + member(section.defining)
			}
			checkTreatment(t, r, `{"name": "n", "cniVersion": "1.0.0", "ipam": {`+ipam+"}}")
		}
	}
	for name := range known {
		if !documented[name] {
			t.Errorf("%s is in no table of %s", name, docFile)
		}
	}
}

// checkTreatment checks what becomes of r.key of "ipam" in config.
func checkTreatment(t *testing.T, r row, config string) {
	t.Helper()
	c, err := ParseConfig([]byte(config), "")
	if r.treatment == refused.String() {
		if err == nil || !strings.Contains(err.Error(), r.key+": ") {
			t.Errorf("%s: got %v; want it refused by name", config, err)
		}
		return
	}
	if err != nil {
		t.Errorf("%s: %v", config, err)
		return
	}
	noted := false
	for _, s := range c.Ignored {
		noted = noted || strings.HasPrefix(s, "ipam."+r.key+": ")
	}
	if want := r.treatment == unneeded.String(); noted != want {
		t.Errorf("%s: ignored %q; want %s among them: %v", config, c.Ignored, r.key, want)
	}
}

func TestDocumentedKeysOfEntries(t *testing.T) {
	for _, section := range []struct{ heading, title, defining, format string }{
		{"Coming from whereabouts", "entry key", "range", `"ipRanges": [{%s}]`},
		{"Coming from host-local", "set key", "subnet", `"ranges": [[{%s}]]`},
	} {
		for _, r := range tables(t, section.heading, section.title) {
			entry := member(r.key)
			if r.key != section.defining {
				entry += ", " + member(section.defining)
			}
			checkTreatment(t, r, network(fmt.Sprintf(section.format, entry)))
		}
	}
}

// TestDocumentedExamples reads every example of the page.
func TestDocumentedExamples(t *testing.T) {
	text, err := os.ReadFile(docFile)
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```(json|yaml)\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(blocks) == 0 {
		t.Fatal("no example")
	}
	for _, b := range blocks {
		if b[1] == "json" {
			mustParse(t, b[2], "")
			continue
		}
		var object struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
			Metadata   struct {
				Namespace string `json:"namespace"`
				Name      string `json:"name"`
			} `json:"metadata"`
			Spec struct {
				PoolText
				Config string `json:"config"`
			} `json:"spec"`
		}
		if err := yaml.UnmarshalStrict([]byte(b[2]), &object); err != nil {
			t.Errorf("%s\n%v", b[2], err)
		}
		switch object.Kind {
		case "IPPool":
			if _, err := ParsePool(object.Spec.PoolText); err != nil {
				t.Errorf("%s\n%v", b[2], err)
			}
		case "NetworkAttachmentDefinition":
			if configs, err := ParseNetwork([]byte(object.Spec.Config), object.Metadata.Name); err != nil || len(configs) != 1 {
				t.Errorf("%s\n%v, %v", b[2], configs, err)
			}
		default:
			t.Errorf("unknown example\n%s", b[2])
		}
	}
}

func TestDocumentedFault(t *testing.T) {
	_, err := ParseConfig([]byte(network(`"range": "10.0.0.0/24", "range_start": "10.0.1.5"`)), "")
	text, readErr := os.ReadFile(docFile)
	if readErr != nil {
		t.Fatal(readErr)
	}
	if err == nil || !strings.Contains(string(text), "\n"+err.Error()+"\n") {
		t.Errorf("%s does not have the error %v", docFile, err)
	}
}

// TestDocumentedRequests does what the page's table of requests says.
func TestDocumentedRequests(t *testing.T) {
	for _, tt := range []struct {
		ip string
		ok bool
	}{{"10.0.0.5", true}, {"10.0.0.5/24", true}, {"10.0.0.5/16", false}, {"10.0.0.200", false}, {"10.0.0.1", false}} {
		_, err := ParseConfig([]byte(network(`"range": "10.0.0.0/24", "range_end": "10.0.0.99", "gateway": "10.0.0.1"`, `"args": {"cni": {"ips": ["`+tt.ip+`"]}}`)), "")
		if (err == nil) != tt.ok {
			t.Errorf("%s: got %v; want it given: %v", tt.ip, err, tt.ok)
		}
	}
}
