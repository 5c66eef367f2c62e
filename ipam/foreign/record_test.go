package foreign

import (
	"encoding/json"
	"slices"
	"testing"
)

func TestWhereaboutsPool(t *testing.T) {
	for _, tt := range []struct {
		name, spec string
		want       []string // "address namespace/pod"
		faults     int
	}{
		{"both families of keys", `{"range":"10.0.0.0/24","allocations":{"5":{"id":"c1","podref":"ns/p","ifname":"net1"},"7":{"id":"c2","podref":"ns/q"}}}`, []string{"10.0.0.5 ns/p", "10.0.0.7 ns/q"}, 0},
		{"IPv6", `{"range":"fd00::/64","allocations":{"65536":{"podref":"ns/p"}}}`, []string{"fd00::1:0 ns/p"}, 0},
		{"empty", `{"range":"10.0.0.0/24"}`, nil, 0},
		{"no range", `{"range":"lan","allocations":{"5":{"podref":"ns/p"}}}`, nil, 1},
		{"offsets that are none", `{"range":"10.0.0.0/24","allocations":{"-1":{"podref":"ns/p"},"256":{"podref":"ns/p"},"x":{"podref":"ns/p"},"5":{"podref":"ns/p"}}}`, []string{"10.0.0.5 ns/p"}, 3},
		{"pods that are none", `{"range":"10.0.0.0/24","allocations":{"5":{"podref":""},"6":{"podref":"p"},"7":"nonsense"}}`, nil, 3},
		{"no map", `{"range":"10.0.0.0/24","allocations":[]}`, nil, 1},
	} {
		var spec map[string]any
		if err := json.Unmarshal([]byte(tt.spec), &spec); err != nil {
			t.Fatal(err)
		}
		records, faults := WhereaboutsPool("kube-system", "pool", spec)
		var got []string
		for _, r := range records {
			got = append(got, r.Addr.String()+" "+r.PodNamespace+"/"+r.PodName)
		}
		if !slices.Equal(got, tt.want) || len(faults) != tt.faults {
			t.Errorf("%s: got %q and faults %q; want %q and %d", tt.name, got, faults, tt.want, tt.faults)
		}
	}
}

func TestWhereaboutsReservation(t *testing.T) {
	spec := map[string]any{"podref": "ns/p", "containerid": "c1"}
	for name, want := range map[string]string{"10.0.0.5": "10.0.0.5", "lan-10.0.0.5": "10.0.0.5", "fd00--5": "fd00::5", "nonsense": ""} {
		r, fault := WhereaboutsReservation("kube-system", name, spec)
		if got := r.Addr; want == "" && fault == "" || want != "" && got.String() != want {
			t.Errorf("%s: got %v, fault %q; want %s", name, got, fault, want)
		}
	}
}

// FuzzReadDefinition: no configuration makes it panic, and a faulty one takes nothing.
func FuzzReadDefinition(f *testing.F) {
	for _, text := range []string{
		`{"type":"macvlan","ipam":{"type":"whereabouts","range":"10.0.0.0/24","exclude":["10.0.0.5/32"]}}`,
		`{"plugins":[{"type":"bridge","ipam":{"type":"host-local","subnet":"fd00::/64"}}]}`, `{"ipam":{"type":"static","addresses":[{"address":"10.0.0.5/24"}]}}`, `{`, `null`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if d := ReadDefinition("ns", "d", text, nil); d.Fault != "" && d.Takes != nil {
			t.Errorf("%q is faulty (%s) and takes %v", text, d.Fault, d.Takes.Ranges())
		}
	})
}

// FuzzWhereaboutsPool: what others write is read or said to be at fault, never more.
func FuzzWhereaboutsPool(f *testing.F) {
	f.Add(`{"range":"10.0.0.0/24","allocations":{"5":{"id":"c1","podref":"ns/p","ifname":"net1"}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		var spec map[string]any
		if json.Unmarshal([]byte(text), &spec) != nil {
			return
		}
		records, _ := WhereaboutsPool("ns", "p", spec)
		for _, r := range records {
			if !r.Addr.IsValid() || r.PodName == "" {
				t.Errorf("%q: record %+v", text, r)
			}
		}
	})
}
