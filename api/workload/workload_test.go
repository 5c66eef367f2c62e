package workload

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tenure-ipam/tenure/api/npwg"
)

func TestClaimName(t *testing.T) {
	long := strings.Repeat("d", 250)
	for name, tt := range map[string]struct {
		set     string
		ordinal int
		element Element
		want    string // for good: claims have it for as long as they live
	}{
		"plain":                            {"web", 0, Element{Namespace: "ns", Name: "lan"}, "web-0.lan"},
		"interface":                        {"web", 12, Element{Namespace: "ns", Name: "storage", Interface: "stor0"}, "web-12.storage.stor0"},
		"another namespace":                {"web", 1, Element{Namespace: "infra", Name: "lan"}, "web-1.infra.lan"},
		"another namespace, and interface": {"web", 1, Element{Namespace: "infra", Name: "lan", Interface: "net2"}, "web-1.infra.lan.net2"},
		"an interface that no name has":    {"web", 1, Element{Namespace: "ns", Name: "lan", Interface: "Net_2"}, "web-1.lan.95b1a62174"},
		"too long":                         {"web", 3, Element{Namespace: "ns", Name: long}, "web-3." + strings.Repeat("d", 236) + ".40ef5b3c7b"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ClaimName(tt.set, tt.ordinal, tt.element, "ns")
			if got != tt.want {
				t.Errorf("got %s; want %s", got, tt.want)
			}
			if err := npwg.CheckName(got); err != nil {
				t.Error(err)
			}
			if n, ok := OrdinalOfClaim(tt.set, got); !ok || n != tt.ordinal {
				t.Errorf("its ordinal is %d, %v; want %d", n, ok, tt.ordinal)
			}
		})
	}
}

func TestOrdinals(t *testing.T) {
	for pod, want := range map[string]int{"web-0": 0, "web-10": 10, "web-01": -1, "web--1": -1, "web-": -1, "web-x": -1, "other-1": -1, "web-1.lan": -1, "web-+1": -1} {
		if n, ok := OrdinalOfPod("web", pod); ok != (want >= 0) || ok && n != want {
			t.Errorf("pod %s: %d, %v; want %d", pod, n, ok, want)
		}
	}
	if _, ok := OrdinalOfPod("", "-1"); ok {
		t.Error("a pod of no set has an ordinal")
	}
	if _, ok := OrdinalOfClaim("web", "web-1"); ok {
		t.Error("web-1 is a claim's name; want one with a definition")
	}
}

func TestParseSet(t *testing.T) {
	const claims, networks = "lan, storage@stor0", "lan, storage@stor0, infra/mgmt"
	for name, tt := range map[string]struct {
		text  Text
		count int
		err   string // empty: it is right
	}{
		"right":                       {Text{Claims: claims, Networks: networks}, 3, ""},
		"networks as JSON":            {Text{Claims: claims, Networks: `[{"name":"lan"},{"name":"storage","interface":"stor0"}]`}, 3, ""},
		"of another namespace":        {Text{Claims: "infra/mgmt", Networks: networks}, 3, ""},
		"the default interface":       {Text{Claims: "lan@net1", Networks: networks}, 3, ""},
		"all words":                   {Text{Claims: claims, Networks: networks, Retention: " whenDeleted=Delete ,whenScaled=Retain"}, 3, ""},
		"a range":                     {Text{Claims: "lan", Networks: networks, Requested: "10.0.0.5-10.0.0.7, fd00::5-fd00::8"}, 3, ""},
		"ranges by element":           {Text{Claims: claims, Networks: networks, Requested: "lan=10.0.0.5-10.0.0.7; storage@stor0=fd00::5-fd00::8"}, 3, ""},
		"no pods, and any range":      {Text{Claims: "lan", Networks: networks, Requested: "10.0.0.5"}, 0, ""},
		"JSON":                        {Text{Claims: `[{"name":"lan"}]`, Networks: networks}, 3, "annotation tenure.dev/claims: it is not in the short form"},
		"nothing":                     {Text{Claims: " ", Networks: networks}, 3, "names no network"},
		"no name":                     {Text{Claims: "lan, Storage", Networks: networks}, 3, `element 2, " Storage"`},
		"twice":                       {Text{Claims: "lan, ns/lan", Networks: networks}, 3, "elements ns/lan and ns/lan would have claims of the same names"},
		"two of one name":             {Text{Claims: "lan@net1, lan.net1", Networks: "lan, lan.net1"}, 3, "claims of the same names"},
		"not selected":                {Text{Claims: "dmz", Networks: networks}, 3, "annotation k8s.v1.cni.cncf.io/networks: it does not select ns/dmz"},
		"not on that interface":       {Text{Claims: "lan@net7", Networks: networks}, 3, "it does not select ns/lan@net7"},
		"selected twice":              {Text{Claims: "lan", Networks: "lan, lan"}, 3, "it selects ns/lan 2 times: name the interface"},
		"a wrong selection":           {Text{Claims: "lan", Networks: "lan, _"}, 3, "annotation k8s.v1.cni.cncf.io/networks: element 2"},
		"a wrong policy":              {Text{Claims: claims, Networks: networks, Retention: "whenScaled=Keep"}, 3, `annotation tenure.dev/claim-retention: whenScaled is "Keep"; want Retain or Delete`},
		"a wrong time":                {Text{Claims: claims, Networks: networks, Retention: "whenscaled=Delete"}, 3, `"whenscaled" is neither whenDeleted nor whenScaled`},
		"a time twice":                {Text{Claims: claims, Networks: networks, Retention: "whenScaled=Delete,whenScaled=Retain"}, 3, "there twice"},
		"ranges that overlap":         {Text{Claims: "lan@a, lan@b", Networks: `[{"name":"lan","interface":"a"},{"name":"lan","interface":"b"}]`, Requested: "lan@a=10.0.0.5-10.0.0.9; lan@b=10.0.0.9-10.0.0.12"}, 3, "their ranges overlap"},
		"fewer addresses than pods":   {Text{Claims: "lan", Networks: networks, Requested: "10.0.0.5-10.0.0.6"}, 3, "range 10.0.0.5-10.0.0.6 has fewer than 3 addresses"},
		"a range of nobody":           {Text{Claims: claims, Networks: networks, Requested: "10.0.0.5-10.0.0.9"}, 3, "names 2 networks: say of which the range is"},
		"a range of another":          {Text{Claims: claims, Networks: networks, Requested: "storage=10.0.0.5-10.0.0.9"}, 3, `"storage" is no element of tenure.dev/claims`},
		"a range twice":               {Text{Claims: "lan", Networks: networks, Requested: "lan=10.0.0.5-10.0.0.9;10.0.1.5-10.0.1.9"}, 3, "ns/lan is there twice"},
		"two ranges of one family":    {Text{Claims: "lan", Networks: networks, Requested: "10.0.0.5-10.0.0.9,10.0.1.5-10.0.1.9"}, 3, "two ranges of one family"},
		"a range that runs backwards": {Text{Claims: "lan", Networks: networks, Requested: "10.0.0.9-10.0.0.5"}, 3, "10.0.0.9-10.0.0.5 is no range"},
		"a range of both families":    {Text{Claims: "lan", Networks: networks, Requested: "10.0.0.9-fd00::1"}, 3, "is no range"},
		"no address":                  {Text{Claims: "lan", Networks: networks, Requested: "10.0.0.0/24"}, 3, `"10.0.0.0/24" is no address`},
		"a mapped address":            {Text{Claims: "lan", Networks: networks, Requested: "::ffff:10.0.0.1"}, 3, "is no address"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseSet("ns", "web", 0, tt.count, tt.text)
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("got %v; want %q", err, tt.err)
			}
		})
	}
	if _, err := ParseSet("ns", strings.Repeat("s", 64), 0, 1, Text{Claims: "lan", Networks: "lan"}); err == nil || !strings.Contains(err.Error(), "64 characters") {
		t.Errorf("a name that no label has: %v", err)
	}
}

// TestRequestedIsCountedFromTheFirstOrdinal: whatever that is.
func TestRequestedIsCountedFromTheFirstOrdinal(t *testing.T) {
	s, err := ParseSet("ns", "web", 5, 300, Text{Claims: "lan", Networks: "lan", Requested: "10.0.0.250-10.0.2.250, fd00::ffff:ffff:ffff:fffe-fd00:0:0:1::ff00"})
	if err != nil {
		t.Fatal(err)
	}
	for ordinal, want := range map[int]string{
		5: "10.0.0.250,fd00::ffff:ffff:ffff:fffe", 11: "10.0.1.0,fd00:0:0:1::4", 304: "10.0.2.37,fd00:0:0:1::129", 4: "",
	} {
		if got := s.Requested(ordinal, s.Elements[0]); got != want {
			t.Errorf("ordinal %d asks for %q; want %q", ordinal, got, want)
		}
	}
	last, _ := parseRange("255.255.255.255")
	if a, ok := last.at(1); ok {
		t.Errorf("after the last address comes %v", a)
	}
	if _, ok := mustRange(t, "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff").at(1); ok {
		t.Error("an address comes after the last of IPv6")
	}
}

func mustRange(t *testing.T, text string) addrRange {
	t.Helper()
	r, err := parseRange(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestWants(t *testing.T) {
	s, err := ParseSet("ns", "web", 2, 2, Text{Claims: "lan", Networks: "lan"})
	if err != nil {
		t.Fatal(err)
	}
	for claim, want := range map[string]bool{"web-1.lan": false, "web-2.lan": true, "web-3.lan": true, "web-4.lan": false, "web-2.dmz": false, "db-2.lan": false} {
		if got := s.Wants(claim); got != want {
			t.Errorf("%s: %v; want %v", claim, got, want)
		}
	}
}

func TestInfer(t *testing.T) {
	selections, err := npwg.Parse("lan, storage@stor0, dmz", "ns", nil)
	if err != nil {
		t.Fatal(err)
	}
	pod := Pod{Namespace: "ns", Name: "web-3", Set: "web", Claims: "storage, lan@net1", Selections: selections}
	for i, want := range []string{"web-3.lan.net1", "web-3.storage", ""} {
		if got, err := Infer(pod, selections[i]); got != want || err != nil {
			t.Errorf("%v has claim %q, %v; want %q", selections[i], got, err, want)
		}
	}
	for want, change := range map[string]func(*Pod){
		"no ordinal of StatefulSet":  func(p *Pod) { p.Name = "web-x" },
		"annotation tenure.dev":      func(p *Pod) { p.Claims = "lan,," },
		"it does not select ns/wan,": func(p *Pod) { p.Claims = "wan" },
	} {
		p := pod
		change(&p)
		if _, err := Infer(p, selections[0]); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v; want %q", err, want)
		}
	}
}

// FuzzParseSet: what is accepted has names and addresses for every ordinal, and two claims
// of one set never have the same name.
func FuzzParseSet(f *testing.F) {
	f.Add("web", "lan, storage@stor0", "lan,storage@stor0", "whenScaled=Delete", "lan=10.0.0.1-10.0.0.9")
	f.Add("w.b", "infra/lan@net1,lan.net1", "infra/lan,lan.net1", "", "fd00::1-fd00::ff")
	f.Fuzz(func(t *testing.T, name, claims, networks, retention, requested string) {
		if npwg.CheckName(name) != nil {
			return
		}
		const count = 3
		s, err := ParseSet("ns", name, 1, count, Text{Claims: claims, Networks: networks, Retention: retention, Requested: requested})
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for i := range count {
			for _, e := range s.Elements {
				claim := s.ClaimName(1+i, e)
				if err := npwg.CheckName(claim); err != nil || seen[claim] || !s.Wants(claim) {
					t.Errorf("claim %q of %v: %v; seen %v, wanted %v", claim, e, err, seen[claim], s.Wants(claim))
				}
				seen[claim] = true
				if n := len(s.ranges[e]); n > 0 && len(strings.Split(s.Requested(1+i, e), ",")) != n {
					t.Errorf("ordinal %d of %v asks for %q of %v", 1+i, e, s.Requested(1+i, e), s.ranges[e])
				}
			}
		}
	})
}

// TestManyElements: what is said of a long annotation is short, and so is what is done about it.
func TestManyElements(t *testing.T) {
	parse := func(n int) error {
		var claims, requested []string
		for i := range n {
			claims = append(claims, fmt.Sprintf("lan@net%d", i))
			requested = append(requested, claims[i]+"=10.0.0.5")
		}
		list := strings.Join(claims, ",")
		_, err := ParseSet("ns", "web", 0, 1, Text{Claims: list, Networks: list, Requested: strings.Join(requested, ";")})
		return err
	}
	if err := parse(64); err == nil || !strings.Contains(err.Error(), "overlap") || len(err.Error()) > 4096 {
		t.Errorf("of 64 elements with one range it says %.4096v", err)
	}
	if err := parse(65); err == nil || !strings.Contains(err.Error(), "a pod may have claims of 64") {
		t.Errorf("of 65 elements it says %.4096v", err)
	}
}
