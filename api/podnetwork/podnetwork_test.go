package podnetwork_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-ipam/tenure/api/podnetwork"
)

func TestParse(t *testing.T) {
	tests := []struct {
		name, text string
		want       []podnetwork.Element
		faults     []string // what the error says; none: there is none
	}{
		{name: "nothing", text: " "},
		{name: "an empty list", text: "[]", want: []podnetwork.Element{}},
		{
			name: "W1 all keys",
			text: `[{"podNetworkName": "lan", "interfaceName": "net7", "isDefaultGW4": true},
				{"podNetworkAttachmentName": "mine", "isDefaultGW6": true, "isDefaultGW4": false}, {"podNetworkName": "default", "interfaceName": "eth0"}]`,
			want: []podnetwork.Element{
				{Network: "lan", Interface: "net7", Gateway4: true},
				{Attachment: "mine", Gateway6: true},
				{Network: "default", Interface: "eth0"},
			},
		},
		{name: "null counts as absent", text: `[{"podNetworkName": "lan", "interfaceName": null}]`, want: []podnetwork.Element{{Network: "lan"}}},
		{name: "W2 not JSON", text: "lan", faults: []string{`want a JSON list such as [{"podNetworkName": "lan"}]`}},
		{name: "W2 one element without a list", text: `{"podNetworkName": "lan"}`, faults: []string{"put it between [ and ]"}},
		{name: "W2 a misspelt key", text: `[{"podNetworkname": "lan"}]`, faults: []string{`element 1: key "podNetworkname" does not exist; there are interfaceName`}},
		{name: "W2 no name", text: `[{"interfaceName": "net1"}]`, faults: []string{"element 1: it names no network"}},
		{name: "W2 two names", text: `[{"podNetworkName": "lan", "podNetworkAttachmentName": "mine"}]`, faults: []string{"keep one"}},
		{name: "W2 a name of 300 characters", text: `[{"podNetworkName": "` + strings.Repeat("a", 300) + `"}]`, faults: []string{"podNetworkName: name \"aaaaaaaaaaaaaaaaaaaa\"… has more than 253 characters"}},
		{name: "W2 a network twice", text: `[{"podNetworkName": "lan"}, {"podNetworkName": "lan"}]`, faults: []string{"element 2: PodNetwork lan is on element 1 as well"}},
		{name: "W2 an attachment twice", text: `[{"podNetworkAttachmentName": "a"}, {"podNetworkAttachmentName": "a"}]`, faults: []string{"element 2: PodNetworkAttachment a is on element 1"}},
		{name: "W2 an interface twice", text: `[{"podNetworkName": "a", "interfaceName": "x"}, {"podNetworkName": "b", "interfaceName": "x"}]`, faults: []string{"element 2: interface x is on element 1"}},
		{name: "W2 two default gateways", text: `[{"podNetworkName": "a", "isDefaultGW4": true, "isDefaultGW6": true}, {"podNetworkName": "b", "isDefaultGW4": true, "isDefaultGW6": true}]`, faults: []string{"element 2: isDefaultGW4 is on element 1", "element 2: isDefaultGW6 is on element 1"}},
		{name: "W2 an interface that Linux cannot have", text: `[{"podNetworkName": "a", "interfaceName": "a/b"}]`, faults: []string{`interfaceName: "a/b" is no interface name`}},
		{name: "W2 eth0 is the default network's", text: `[{"podNetworkName": "a", "interfaceName": "eth0"}]`, faults: []string{"eth0 is the default network's interface"}},
		{name: "W2 the default network's is eth0", text: `[{"podNetworkName": "default", "interfaceName": "net1"}]`, faults: []string{"the default network's interface is eth0, not net1"}},
		{name: "W2 a flag that is a word", text: `[{"podNetworkName": "a", "isDefaultGW4": "true"}]`, faults: []string{`isDefaultGW4: "true" is neither true nor false`}},
		{name: "W2 many misspelt keys", text: "[{" + misspelt(1000) + "}]", faults: []string{`key "k000" does not exist`, "and 984 more"}},
		{name: "W2 too many", text: "[" + strings.Repeat(`{},`, 256) + "{}]", faults: []string{"it has 257 elements; a pod may list 256"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := podnetwork.Parse(tt.text)
			if len(tt.faults) == 0 && (err != nil || !slices.Equal(got, tt.want)) {
				t.Errorf("got %+v, %v; want %+v", got, err, tt.want)
			}
			for _, want := range tt.faults {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v; want %q", err, want)
				}
			}
		})
	}
}

// misspelt returns members of an object that mean nothing.
func misspelt(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`"k%03d": 1`, i))
	}
	return strings.Join(all, ", ")
}

// TestPodIP (W5): what is written is the proposal's form.
func TestPodIP(t *testing.T) {
	got, err := json.Marshal([]podnetwork.PodIP{
		{IP: netip.MustParseAddr("10.0.0.5"), Network: "default", Interface: "eth0"},
		{IP: netip.MustParseAddr("fd00::5"), Network: "lan", Interface: "net1"},
	})
	const want = `[{"ip":"10.0.0.5","podNetwork":"default","interfaceName":"eth0"},{"ip":"fd00::5","podNetwork":"lan","interfaceName":"net1"}]`
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v; want %s", got, err, want)
	}
}

// FuzzParse: no text has Parse panic, or pass what an element may not be.
func FuzzParse(f *testing.F) {
	f.Add(`[{"podNetworkName": "lan", "interfaceName": "net7", "isDefaultGW4": true}]`)
	f.Add(`[{"podNetworkAttachmentName": "mine"}, null, {"podNetworkName": 1}]`)
	f.Fuzz(func(t *testing.T, text string) {
		elements, err := podnetwork.Parse(text)
		if err != nil {
			return
		}
		names := map[string]bool{}
		for _, e := range elements {
			if (e.Network == "") == (e.Attachment == "") {
				t.Errorf("%q: %+v has not exactly one name", text, e)
			}
			if names[e.String()] {
				t.Errorf("%q: %v twice", text, e)
			}
			names[e.String()] = true
		}
	})
}
