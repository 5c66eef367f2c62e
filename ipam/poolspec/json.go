package poolspec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-ipam/tenure/ipam/lean/plainjson"
)

// object is a JSON object with its members in the order of the text, so that
// faults come in that order, and duplicates can be seen.
type object struct {
	path   string // of the object itself; empty at the top
	fields []field
}

// field is one member of an [object]. Its value is valid JSON, with nothing around
// it, and shares the memory of the text that was read.
type field struct {
	key string
	raw json.RawMessage
}

// at returns the path of member key.
func (o object) at(key string) string {
	if o.path == "" {
		return key
	}
	return o.path + "." + key
}

// find returns the member key as it is, even if it is null or empty. Like encoding/json it ignores
// the case of the key. If there are several such members, it prefers one that is neither null nor
// empty, then one whose case is that of key, then the last.
func (o object) find(key string) (raw json.RawMessage, ok bool) {
	best := -1
	for _, f := range o.fields {
		if !strings.EqualFold(f.key, key) {
			continue
		}
		rank := 0
		if !says(f.raw, kindNothing) {
			rank += 2
		}
		if f.key == key {
			rank++
		}
		if rank >= best {
			raw, best = f.raw, rank
		}
	}
	return raw, best >= 0
}

// get returns member key if it says something: null, "" and [] do not.
func (o object) get(key string) (json.RawMessage, bool) {
	raw, ok := o.find(key)
	return raw, ok && !says(raw, kindNothing)
}

// set gives member key the value raw.
func (o *object) set(key string, raw json.RawMessage) {
	o.fields = slices.DeleteFunc(o.fields, func(f field) bool { return strings.EqualFold(f.key, key) })
	o.fields = append(o.fields, field{key, raw})
}

// kind is what a JSON value is, by its first byte.
type kind uint8

const (
	kindNothing kind = iota // null, "" or []
	kindString
	kindNumber
	kindBool
	kindList
	kindObject
)

func (k kind) String() string {
	return [...]string{"empty", "a string", "a number", "a boolean", "a list", "an object"}[k]
}

// kindOf returns what raw, which is valid JSON with nothing around it, is.
func kindOf(raw json.RawMessage) kind {
	switch raw[0] {
	case 'n':
		return kindNothing
	case '"':
		if len(raw) == 2 {
			return kindNothing
		}
		return kindString
	case '[':
		if len(bytes.TrimSpace(raw[1:len(raw)-1])) == 0 {
			return kindNothing
		}
		return kindList
	case '{':
		return kindObject
	case 't', 'f':
		return kindBool
	default:
		return kindNumber
	}
}

// isZero reports whether raw says nothing, or what a field of a Go struct has that nobody has set.
func isZero(raw json.RawMessage) bool {
	switch kindOf(raw) {
	case kindNothing:
		return true
	case kindNumber:
		return string(raw) == "0"
	case kindBool:
		return raw[0] == 'f'
	case kindObject:
		for _, value := range plainjson.Members(raw) {
			if !isZero(value) {
				return false
			}
		}
		return true
	default:
		return false
	}
}

// says reports whether raw is of kind k.
func says(raw json.RawMessage, k kind) bool { return kindOf(raw) == k }

// want reports whether raw is of kind k, and a fault if it is not.
func (fs *faults) want(path string, raw json.RawMessage, k kind, remedy string) bool {
	if says(raw, k) {
		return true
	}
	fs.add(path, "is "+kindOf(raw).String()+", not "+k.String(), remedy)
	return false
}

// document reads the text of a whole configuration.
func (fs *faults) document(text []byte) (object, bool) {
	kind := fs.kind
	fs.kind = ErrDecode
	defer func() { fs.kind = kind }()

	const where, remedy = "configuration", "pass one JSON object"
	if !json.Valid(text) {
		err := json.Unmarshal(text, new(json.RawMessage))
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			fs.addf(where, "correct the JSON there", "%v at byte %d", syntax, syntax.Offset)
		} else {
			fs.addf(where, remedy, "%v", err)
		}
		return object{}, false
	}
	raw := plainjson.Trim(text)
	if !fs.want(where, raw, kindObject, remedy) {
		return object{}, false
	}
	return object{fields: members(raw)}, true
}

// dict reads the object raw. A key that it has twice is a fault.
func (fs *faults) dict(path string, raw json.RawMessage) (object, bool) {
	if !fs.want(path, raw, kindObject, "write an object in braces") {
		return object{}, false
	}
	o := object{path: path, fields: members(raw)}
	fs.unique(o, func(string) bool { return true })
	return o, true
}

// members returns the members of the object raw, which is valid as part of the
// whole text.
func members(raw json.RawMessage) []field {
	fields := make([]field, 0, 8)
	for key, value := range plainjson.Members(raw) {
		fields = append(fields, field{string(key), value})
	}
	return fields
}

// few is up to how many members are compared with each other.
const few = 16

// unique reports which of the keys that matter o has twice.
func (fs *faults) unique(o object, matters func(key string) bool) {
	if len(o.fields) > few {
		fs.uniqueOfMany(o, matters)
		return
	}
	for i, f := range o.fields {
		for _, earlier := range o.fields[:i] {
			if earlier.key == f.key && matters(f.key) {
				fs.twice(o, f.key)
				break
			}
		}
	}
}

// uniqueOfMany does what unique does, in linear time.
func (fs *faults) uniqueOfMany(o object, matters func(key string) bool) {
	seen := make(map[string]bool, len(o.fields))
	for _, f := range o.fields {
		if seen[f.key] && matters(f.key) {
			fs.twice(o, f.key)
		}
		seen[f.key] = true
	}
}

// agree reports keys that differ from another in nothing but the case, and say something else.
func (fs *faults) agree(o object) {
	for i, f := range o.fields {
		if i > maxAgree || says(f.raw, kindNothing) {
			continue
		}
		for _, earlier := range o.fields[:i] {
			if earlier.key != f.key && strings.EqualFold(earlier.key, f.key) && !says(earlier.raw, kindNothing) && !bytes.Equal(earlier.raw, f.raw) {
				fs.addf(o.at(f.key), "keep one of the two", "says something else than %s, and programs read the two as one key", o.at(earlier.key))
				break
			}
		}
	}
}

// maxAgree is up to how many members are compared with each other in another case. No plugin has
// as many keys.
const maxAgree = 256

func (fs *faults) twice(o object, key string) {
	fs.add(o.at(key), "appears twice", "keep one of the two")
}

// items reads the list raw.
func (fs *faults) items(path string, raw json.RawMessage) []json.RawMessage {
	if says(raw, kindNothing) || !fs.want(path, raw, kindList, "write a list in brackets") {
		return nil
	}
	return slices.Collect(plainjson.Items(raw))
}

// text reads the string at o's key; absent and empty are the same.
func (fs *faults) text(o object, key string) string {
	raw, ok := o.get(key)
	switch {
	case !ok:
		return ""
	case says(raw, kindString): // before its path is put together
		return plainjson.Text(raw)
	default:
		return fs.textOf(o.at(key), raw)
	}
}

// textOf reads the string raw.
func (fs *faults) textOf(path string, raw json.RawMessage) string {
	if !fs.want(path, raw, kindString, "write a string in quotes") {
		return ""
	}
	return plainjson.Text(raw)
}

// texts reads the list of strings at o's key. Where one is none, or is empty,
// it reports that and returns an empty string in its place.
func (fs *faults) texts(o object, key string) []string {
	raw, ok := o.get(key)
	if !ok {
		return nil
	}
	var out []string
	for i, item := range fs.items(o.at(key), raw) {
		out = append(out, fs.textOf(fmt.Sprintf("%s[%d]", o.at(key), i), item))
	}
	return out
}

// flag reads the boolean at o's key; absent is otherwise.
func (fs *faults) flag(o object, key string, otherwise bool) bool {
	raw, ok := o.get(key)
	if !ok || !fs.want(o.at(key), raw, kindBool, "write true or false without quotes") {
		return otherwise
	}
	return raw[0] == 't'
}

// number reads the whole number at o's key, which is not negative. It is nil if
// absent.
func (fs *faults) number(o object, key string) *int {
	raw, ok := o.get(key)
	if !ok || !fs.want(o.at(key), raw, kindNumber, "write a whole number without quotes") {
		return nil
	}
	var n int
	if err := json.Unmarshal(raw, &n); err != nil || n < 0 {
		fs.add(o.at(key), string(raw)+" is not a whole number from zero up", "write one")
		return nil
	}
	return &n
}
