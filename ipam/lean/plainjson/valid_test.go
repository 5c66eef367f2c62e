package plainjson

import (
	"encoding/json"
	"strings"
	"testing"
)

// FuzzValid proves that Valid says what encoding/json says.
func FuzzValid(f *testing.F) {
	for _, text := range []string{
		``, ` `, `{}`, ` { } `, `{,}`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{"a":1 "b":2}`, `{a:1}`, `{"a":1`, `{"a":1]`, `{"a" : [ ] , "b":{}}x`,
		`[]`, `[ ]`, `[,]`, `[1,]`, `[1 2]`, `[1`, `[1}`, `[[[]]]`, `null`, `nul`, `nulL`, `true`, `false`, `truefalse`, `t`,
		`""`, `"`, `"\"`, `"\"`, `"\\"`, `"\/\b\f\n\r\t\""`, `"\x"`, `"\u12"`, `"\u12g4"`, `"\u12aF"`, `"\u`, "\"\n\"", "\"\x7f\xff\"",
		`0`, `-0`, `-`, `00`, `01`, `-01`, `1.`, `.1`, `1.0`, `1.e1`, `1e`, `1e+`, `1E-05`, `1e1.0`, `+1`, `1 `, `1 1`, `--1`, "\ufeff1", "\v1",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if got, want := Valid(text), json.Valid(text); got != want {
			t.Errorf("Valid(%q) = %v; encoding/json says %v", text, got, want)
		}
	})
}

func TestValidDepth(t *testing.T) {
	for _, depth := range []int{maxDepth, maxDepth + 1} {
		for _, text := range []string{
			strings.Repeat("[", depth) + strings.Repeat("]", depth),
			strings.Repeat(`{"a":`, depth) + "1" + strings.Repeat("}", depth),
		} {
			if got, want := Valid([]byte(text)), json.Valid([]byte(text)); got != want {
				t.Errorf("%d of %.6s in each other: Valid = %v; encoding/json says %v", depth, text, got, want)
			}
		}
	}
}

func TestDeeper(t *testing.T) {
	for text, depth := range map[string]int{
		`1`: 0, `"[["`: 0, `"\"[["`: 0, ` {}`: 1, `[[],[],{}]`: 2, `{"[":["{", {"a":"}"}],"b":[[[1]]]}`: 4, `[{},[]]`: 2,
	} {
		if Deeper([]byte(text), depth) || depth > 0 && !Deeper([]byte(text), depth-1) {
			t.Errorf("%s: want a depth of %d", text, depth)
		}
	}
}

// sample is a request of the node socket.
const sample = `{"v":1,"verb":"ADD","containerID":"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef","netns":"/var/run/netns/cni-01234567-89ab-cdef-0123-456789abcdef",` +
	`"ifName":"net1","args":"IgnoreUnknown=true;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0;K8S_POD_UID=01234567-89ab-cdef-0123-456789abcdef",` +
	`"netnsID":"4:4026532281","config":{"cniVersion":"1.0.0","name":"vlan10","type":"macvlan","master":"eth1","mtu":1500,"mode":"bridge","ipam":{"type":"tenure","pool":"vlan10"}},"deadlineMillis":30000}`

func BenchmarkValid(b *testing.B) {
	for name, valid := range map[string]func([]byte) bool{"plainjson": Valid, "encoding": json.Valid} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(sample)))
			for b.Loop() {
				if !valid([]byte(sample)) {
					b.Fatal("it is valid")
				}
			}
		})
	}
}
