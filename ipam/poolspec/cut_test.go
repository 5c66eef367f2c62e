package poolspec

import (
	"encoding/json"
	"reflect"
	"testing"
)

// FuzzCut proves that cutting valid JSON finds what decoding it finds.
func FuzzCut(f *testing.F) {
	for _, text := range []string{
		`{}`, ` { } `, `[]`, `[ ]`, `null`, `""`, `"a"`, `1`, `-1.5e3`, `true`,
		`{"a":1,"b":[1,2,{"c":"}]"}],"d":{"e":null}}`,
		"{\t\"a\" : \"\\\"\\\\\" ,\r\n \"b\" : [ 1 , [ ] , \"\\u00e9\" ] }",
		`{"\u0061":1,"a":2,"é":"\ud800","":""}`,
		"[\"\xff\",{\"\xff\":\"[\"}]",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if !json.Valid(text) {
			return
		}
		begin := skipSpace(text, 0)
		raw := json.RawMessage(text[begin:skipValue(text, begin)])
		if rest := skipSpace(text, begin+len(raw)); rest != len(text) {
			t.Fatalf("the value of %q ends at %d, and there is more", text, begin+len(raw))
		}
		checkCut(t, raw)
	})
}

// checkCut compares the parts of raw with what encoding/json makes of it.
func checkCut(t *testing.T, raw json.RawMessage) {
	t.Helper()
	switch raw[0] {
	case '{':
		got := map[string]json.RawMessage{}
		for _, f := range cutObject(raw) {
			got[f.key] = f.raw // of two, encoding/json takes the last as well
			checkCut(t, f.raw)
		}
		var want map[string]json.RawMessage
		if err := json.Unmarshal(raw, &want); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("members of %q: got %q; want %q, %v", raw, got, want, err)
		}
	case '[':
		got := cutList(raw)
		var want []json.RawMessage
		if err := json.Unmarshal(raw, &want); err != nil || len(got) != len(want) || len(got) > 0 && !reflect.DeepEqual(got, want) {
			t.Errorf("items of %q: got %q; want %q, %v", raw, got, want, err)
		}
		if says(raw, kindNothing) != (len(want) == 0) {
			t.Errorf("%q is %v", raw, kindOf(raw))
		}
	case '"':
		var want string
		if err := json.Unmarshal(raw, &want); err != nil || unquote(raw) != want {
			t.Errorf("%q stands for %q; want %q, %v", raw, unquote(raw), want, err)
		}
	}
}

// TestConfigSharesNothing: callers may use the text's memory again.
func TestConfigSharesNothing(t *testing.T) {
	text := []byte(network(`"ipRanges": [{"range": "10.0.0.0/24", "exclude": ["10.0.0.8/29"]}], "routes": [{"dst": "0.0.0.0/0"}], "dns": {"domain": "x"}`,
		`"prevResult": {"ips": [{"address": "10.0.0.6/24"}]}`, `"cni.dev/valid-attachments": [{"containerID": "c", "ifname": "net1"}]`))
	for name, parse := range map[string]func([]byte) (*Config, error){
		"config":  func(b []byte) (*Config, error) { return ParseConfig(b, "") },
		"release": ParseRelease,
	} {
		reused := append([]byte(nil), text...)
		got, err := parse(reused)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		clear(reused)
		want, err := parse(text)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v; want %+v, %v", name, got, want, err)
		}
	}
}
