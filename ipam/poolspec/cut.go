package poolspec

import (
	"encoding/json"
	"unicode/utf8"
)

// This file cuts valid JSON into its parts. Nothing in it looks for faults:
// [faults.document] has checked the whole text, once. encoding/json checks what it
// is given, so that taking a text apart by it checks each part again at every
// level: that was two thirds of what reading a configuration cost, of which every
// ADD pays for two.

// skipSpace returns the index of the first byte at or after i that is not white
// space.
func skipSpace(text []byte, i int) int {
	for i < len(text) && (text[i] == ' ' || text[i] == '\n' || text[i] == '\t' || text[i] == '\r') {
		i++
	}
	return i
}

// skipValue returns the index after the value that begins at i.
func skipValue(text []byte, i int) int {
	switch text[i] {
	case '"':
		return skipString(text, i)
	case '{', '[':
		return skipNested(text, i)
	default: // a number or a word, which ends where another token begins
		for i < len(text) {
			switch text[i] {
			case ',', ']', '}', ' ', '\n', '\t', '\r':
				return i
			}
			i++
		}
		return i
	}
}

// skipString returns the index after the string that begins at i.
func skipString(text []byte, i int) int {
	for i++; text[i] != '"'; i++ {
		if text[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// skipNested returns the index after the object or the list that begins at i.
func skipNested(text []byte, i int) int {
	depth := 0
	for {
		switch text[i] {
		case '"':
			i = skipString(text, i) - 1
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
}

// cutObject returns the members of the object raw. Their values share its memory.
func cutObject(raw json.RawMessage) []field {
	fields := make([]field, 0, 8)
	for i := skipSpace(raw, 1); raw[i] != '}'; {
		end := skipString(raw, i)
		key := unquote(raw[i:end])
		i = skipSpace(raw, skipSpace(raw, end)+1) // past the colon
		end = skipValue(raw, i)
		fields = append(fields, field{key, raw[i:end:end]})
		i = nextItem(raw, end)
	}
	return fields
}

// cutList returns the items of the list raw. They share its memory.
func cutList(raw json.RawMessage) []json.RawMessage {
	var items []json.RawMessage
	for i := skipSpace(raw, 1); raw[i] != ']'; {
		end := skipValue(raw, i)
		items = append(items, raw[i:end:end])
		i = nextItem(raw, end)
	}
	return items
}

// nextItem returns the index of what follows an item that ends at i: the next
// item, or the bracket that closes them.
func nextItem(raw []byte, i int) int {
	i = skipSpace(raw, i)
	if raw[i] == ',' {
		i = skipSpace(raw, i+1)
	}
	return i
}

// unquote returns the string that raw, a JSON string, stands for. It shares no
// memory with raw.
func unquote(raw []byte) string {
	inner := raw[1 : len(raw)-1]
	for _, c := range inner {
		if c == '\\' || c >= utf8.RuneSelf {
			var s string
			_ = json.Unmarshal(raw, &s) // it is valid
			return s
		}
	}
	return string(inner)
}
