// Package plainjson takes valid JSON apart, and writes strings of it, without
// encoding/json's reflection.
//
// encoding/json checks all that it is given: taking a text apart by it checks each
// part again at every level. And in a process that lives for one call, as a CNI
// plugin's does, most of its cost is in learning the types for the first time. So
// a text is checked once, as a whole, with [json.Valid], and then cut by this package,
// which looks for no faults. Of anything else than valid JSON it returns the parts that are
// whole, up to the first fault of its structure.
package plainjson

import (
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Members returns the members of the object raw, in order. Keys and values have
// nothing around them, share raw's memory, and are valid as long as it is.
func Members(raw json.RawMessage) iter.Seq2[[]byte, json.RawMessage] {
	return func(yield func([]byte, json.RawMessage) bool) {
		for i := inside(raw, '{'); at(raw, i) == '"'; {
			end := skipString(raw, i)
			colon := skipSpace(raw, end)
			if end == 0 || at(raw, colon) != ':' {
				return
			}
			key := unquoted(raw[i:end])
			i = skipSpace(raw, colon+1)
			end = skipValue(raw, i)
			if end == 0 || !yield(key, raw[i:end:end]) {
				return
			}
			i = skipComma(raw, end)
		}
	}
}

// Items returns the items of the list raw, in order. They have nothing around
// them, share raw's memory, and are valid as long as it is.
func Items(raw json.RawMessage) iter.Seq[json.RawMessage] {
	return func(yield func(json.RawMessage) bool) {
		for i := inside(raw, '['); i < len(raw) && raw[i] != ']'; {
			end := skipValue(raw, i)
			if end == 0 || !yield(raw[i:end:end]) {
				return
			}
			i = skipComma(raw, end)
		}
	}
}

// Trim returns the value that text is, with nothing around it.
func Trim(text []byte) json.RawMessage {
	begin := skipSpace(text, 0)
	if end := skipValue(text, begin); end > 0 {
		return text[begin:end]
	}
	return nil
}

// Text returns what the string raw stands for, and nothing of another value. It shares no
// memory with raw.
func Text(raw json.RawMessage) string { return string(unquoted(raw)) }

// Deeper reports whether more than so many objects and lists of the valid text lie in each
// other.
func Deeper(text []byte, than int) bool {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			end := skipString(text, i)
			if end == 0 {
				return false
			}
			i = end - 1
		case '{', '[':
			if depth++; depth > than {
				return true
			}
		case '}', ']':
			depth--
		}
	}
	return false
}

// AppendText appends the JSON string that stands for s, as encoding/json has it
// but for the escapes that only matter in HTML.
func AppendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			quoted, err := json.Marshal(s)
			if err != nil { // there is no string that JSON cannot hold
				panic("plainjson: " + err.Error())
			}
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

// AppendKey appends what stands before a member's value: a comma unless b ends
// with the bracket that opens the object, and key, which needs no escapes.
func AppendKey(b []byte, key string) []byte {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	b = append(b, '"')
	b = append(b, key...)
	return append(b, '"', ':')
}

// AppendTextMember appends the member key unless its value s is empty.
func AppendTextMember(b []byte, key, s string) []byte {
	if s == "" {
		return b
	}
	return AppendText(AppendKey(b, key), s)
}

// AppendTextsMember appends the member key, a list of strings, unless it is empty.
func AppendTextsMember(b []byte, key string, list []string) []byte {
	if len(list) == 0 {
		return b
	}
	b = append(AppendKey(b, key), '[')
	for i, s := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = AppendText(b, s)
	}
	return append(b, ']')
}

// AppendMap appends the object with the members of m, valid JSON, in the order of
// their keys.
func AppendMap(b []byte, m map[string]json.RawMessage) []byte {
	b = append(b, '{')
	for i, key := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = AppendLine(append(AppendText(b, key), ':'), m[key])
	}
	return append(b, '}')
}

// AppendLine appends raw, valid JSON, without its line breaks, which a string does not
// have; nothing is null.
func AppendLine(b []byte, raw json.RawMessage) []byte {
	if len(raw) == 0 {
		return append(b, "null"...)
	}
	begin := len(b)
	b = append(b, raw...)
	for i, c := range b[begin:] {
		if c == '\n' || c == '\r' {
			b[begin+i] = ' '
		}
	}
	return b
}

// AppendIntMember appends the member key unless its value n is 0.
func AppendIntMember(b []byte, key string, n int64) []byte {
	if n == 0 {
		return b
	}
	return strconv.AppendInt(AppendKey(b, key), n, 10)
}

// unquoted returns what the string raw stands for, in raw's memory if it can.
func unquoted(raw json.RawMessage) []byte {
	if len(raw) < 2 || raw[0] != '"' || raw[len(raw)-1] != '"' {
		return nil
	}
	inner := raw[1 : len(raw)-1]
	for _, c := range inner {
		if c == '\\' || c >= utf8.RuneSelf {
			var s string
			_ = json.Unmarshal(raw, &s) // it is valid
			return []byte(s)
		}
	}
	return inner
}

// at returns the byte at i, 0 where there is none.
func at(text []byte, i int) byte {
	if i < len(text) {
		return text[i]
	}
	return 0
}

// inside returns the index of what follows the bracket that opens raw; where another byte
// does, there is nothing.
func inside(raw []byte, bracket byte) int {
	if at(raw, 0) != bracket {
		return len(raw)
	}
	return skipSpace(raw, 1)
}

// skipSpace returns the index of the first byte at or after i that is not white
// space.
func skipSpace(text []byte, i int) int {
	for i < len(text) && (text[i] == ' ' || text[i] == '\n' || text[i] == '\t' || text[i] == '\r') {
		i++
	}
	return i
}

// skipComma returns the index of the item that follows one which ends at i; where no comma
// does, there is none.
func skipComma(text []byte, i int) int {
	i = skipSpace(text, i)
	if at(text, i) != ',' {
		return len(text)
	}
	return skipSpace(text, i+1)
}

// skipValue returns the index after the value that begins at i, 0 if none does.
func skipValue(text []byte, i int) int {
	switch at(text, i) {
	case '"':
		return skipString(text, i)
	case '{', '[':
		return skipNested(text, i)
	case 0, ',', ']', '}', ':':
		return 0
	}
	for i < len(text) { // a number or a word, which ends where another token begins
		switch text[i] {
		case ',', ']', '}', ' ', '\n', '\t', '\r':
			return i
		}
		i++
	}
	return i
}

// skipString returns the index after the string that begins at i, 0 if it does not end.
func skipString(text []byte, i int) int {
	for i++; i < len(text); i++ {
		switch text[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
	}
	return 0
}

// skipNested returns the index after the object or the list that begins at i, 0 if it does
// not end.
func skipNested(text []byte, i int) int {
	depth := 0
	for i < len(text) {
		switch text[i] {
		case '"':
			end := skipString(text, i)
			if end == 0 {
				return 0
			}
			i = end - 1
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		i++
		if depth == 0 {
			return i
		}
	}
	return 0
}
