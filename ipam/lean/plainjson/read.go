package plainjson

import (
	"encoding/json"
	"fmt"
)

// Object returns the members of the object text, which need not be valid, and nil for
// null. Of a member that is there twice the last one counts. Values share text's
// memory.
func Object(text []byte) (map[string]json.RawMessage, error) {
	var members map[string]json.RawMessage
	if !json.Valid(text) {
		return nil, json.Unmarshal(text, &members) // says where
	}
	raw := Trim(text)
	if IsNull(raw) {
		return members, nil
	}
	if raw[0] != '{' {
		return nil, json.Unmarshal(raw, &members) // says what it is
	}
	members = map[string]json.RawMessage{}
	for key, v := range Members(raw) {
		members[string(key)] = v
	}
	return members, nil
}

// ReadMembers calls read with each member of raw. Its error names the member, or
// says that raw is no object.
func ReadMembers(raw json.RawMessage, read func(key []byte, v json.RawMessage) error) error {
	if at(raw, 0) != '{' {
		return fmt.Errorf("%.40q is not an object", raw)
	}
	for key, v := range Members(raw) {
		if err := read(key, v); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	return nil
}

// ReadList reads a list; null is an empty one.
func ReadList[T any](raw json.RawMessage, read func(json.RawMessage) (T, error)) ([]T, error) {
	if IsNull(raw) {
		return nil, nil
	}
	if at(raw, 0) != '[' {
		return nil, fmt.Errorf("%.40q is not a list", raw)
	}
	var out []T
	for item := range Items(raw) {
		v, err := read(item)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// ReadText reads a string.
func ReadText[T ~string](raw json.RawMessage) (T, error) {
	var s string
	if !TextTo(raw, &s) {
		return "", fmt.Errorf("%.40q is not a string", raw)
	}
	return T(s), nil
}

// TextTo reads a string into to, and reports whether raw is one.
func TextTo(raw json.RawMessage, to *string) bool {
	if at(raw, 0) != '"' {
		return false
	}
	*to = Text(raw)
	return true
}

// ReadTexts reads an object of strings; null is none.
func ReadTexts(raw json.RawMessage) (map[string]string, error) {
	var out map[string]string
	if IsNull(raw) {
		return out, nil
	}
	out = map[string]string{}
	err := ReadMembers(raw, func(key []byte, v json.RawMessage) (err error) {
		out[string(key)], err = ReadText[string](v)
		return err
	})
	return out, err
}

// IsNull reports whether raw is null.
func IsNull(raw json.RawMessage) bool { return at(raw, 0) == 'n' }
