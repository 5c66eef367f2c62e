package plainjson

import (
	"encoding/json"
	"reflect"
	"testing"
)

// FuzzCut proves that cutting valid JSON finds what encoding/json finds.
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
		raw := Trim(text)
		var want json.RawMessage
		if err := json.Unmarshal(text, &want); err != nil || string(raw) != string(want) {
			t.Fatalf("Trim(%q) = %q; want %q, %v", text, raw, want, err)
		}
		checkCut(t, raw)
	})
}

// FuzzAnyBytes cuts what need not be JSON: no panic, an end, and parts that lie in the text,
// one after the other.
func FuzzAnyBytes(f *testing.F) {
	for _, text := range []string{
		``, `{`, `[`, `"`, `{"`, `{"a`, `{"a"`, `{"a":`, `{"a":1`, `{"a":"`, `{"a":[1,`, `{"a" 1}`, `{"a"}`, `{,}`, `[,]`, `[:]`, `[1 2]`, `{"a":1 "b":2}`, `"\`, `["\`, "n", "\x00", `}`, `{"a":{"b":[`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		raw := Trim(text)
		_, _ = Object(text)
		_, _ = ReadTexts(raw)
		_, _ = ReadText[string](raw)
		_ = ReadMembers(raw, func([]byte, json.RawMessage) error { return nil })
		_, _ = ReadList(raw, func(json.RawMessage) (int, error) { return 0, nil })
		_, _, _ = Deeper(text, 3), IsNull(text), Text(text)
		for _, whole := range [][]byte{text, raw} {
			rest := len(whole)
			for _, v := range Members(whole) {
				if len(v) == 0 || len(v) > rest {
					t.Fatalf("a value of %q is %q, after which %d bytes are left", whole, v, rest-len(v))
				}
				rest -= len(v)
				_ = Text(v)
			}
			rest = len(whole)
			for v := range Items(whole) {
				if len(v) == 0 || len(v) > rest {
					t.Fatalf("an item of %q is %q, after which %d bytes are left", whole, v, rest-len(v))
				}
				rest -= len(v)
			}
		}
	})
}

// checkCut compares the parts of raw with what encoding/json makes of it.
func checkCut(t *testing.T, raw json.RawMessage) {
	t.Helper()
	switch raw[0] {
	case '{':
		got := map[string]json.RawMessage{}
		for key, value := range Members(raw) {
			got[string(key)] = value // of two, encoding/json takes the last as well
			checkCut(t, value)
		}
		var want map[string]json.RawMessage
		if err := json.Unmarshal(raw, &want); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("members of %q: got %q; want %q, %v", raw, got, want, err)
		}
	case '[':
		got := []json.RawMessage{}
		for item := range Items(raw) {
			got = append(got, item)
			checkCut(t, item)
		}
		var want []json.RawMessage
		if err := json.Unmarshal(raw, &want); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("items of %q: got %q; want %q, %v", raw, got, want, err)
		}
	case '"':
		var want string
		if err := json.Unmarshal(raw, &want); err != nil || Text(raw) != want {
			t.Errorf("Text(%q) = %q; want %q, %v", raw, Text(raw), want, err)
		}
	}
}

func TestLoopsEndEarly(t *testing.T) {
	for key := range Members(json.RawMessage(`{"a":1,"b":2}`)) {
		if string(key) != "a" {
			t.Errorf("went on to %q", key)
		}
		break
	}
	for item := range Items(json.RawMessage(`[1,2]`)) {
		if string(item) != "1" {
			t.Errorf("went on to %q", item)
		}
		break
	}
}

// FuzzAppendText proves that what is written means what was meant.
func FuzzAppendText(f *testing.F) {
	for _, s := range []string{"", "web-0", `"`, `\`, "\n", "\x00", "é", "\xff", "</script>", "\u2028"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		text := AppendTextMember([]byte{'{'}, "a", s)
		text = append(AppendIntMember(text, "n", int64(len(s))), '}')
		var got struct {
			A string
			N int
		}
		quoted, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		want := Text(quoted) // invalid UTF-8 becomes U+FFFD
		if err := json.Unmarshal(text, &got); err != nil || got.A != want || got.N != len(s) {
			t.Errorf("%q was written as %s and read as %+v, %v", s, text, got, err)
		}
	})
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
