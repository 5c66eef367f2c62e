package foreign

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Switch returns a definition's configuration with every IPAM plugin of one type named as
// another: "type": "whereabouts" in an ipam section becomes "type": "tenure". All else of the
// text stays as it is, byte for byte.
func Switch(config, from, to string) (string, error) {
	ends, err := typesOf(config, from)
	if err != nil {
		return "", err
	}
	if len(ends) == 0 {
		return "", fmt.Errorf("no ipam section of it names %s", from)
	}
	quoted := `"` + from + `"`
	var b strings.Builder
	at := 0
	for _, end := range ends {
		start := end - len(quoted)
		if start < at || config[start:end] != quoted {
			return "", fmt.Errorf("the type is not written as %s: switch it by hand", quoted)
		}
		b.WriteString(config[at:start] + `"` + to + `"`)
		at = end
	}
	b.WriteString(config[at:])
	return b.String(), nil
}

// typesOf returns where the values end that say, in ipam sections, that the type is from.
func typesOf(config, from string) (ends []int, err error) {
	dec := json.NewDecoder(strings.NewReader(config))
	type level struct {
		object, key bool
		name        string
	}
	var path []level
	inIPAM := func() bool {
		n := len(path)
		return n >= 2 && path[n-1].object && path[n-1].name == "type" && path[n-2].object && path[n-2].name == "ipam"
	}
	for {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) && len(path) == 0 {
			return ends, nil
		}
		if err != nil {
			return nil, fmt.Errorf("its configuration is no JSON: %w", err)
		}
		top := len(path) - 1
		switch t := tok.(type) {
		case json.Delim:
			switch t {
			case '{':
				path = append(path, level{object: true, key: true})
				continue
			case '[':
				path = append(path, level{})
				continue
			default:
				path = path[:top]
				top--
			}
		case string:
			if top >= 0 && path[top].object && path[top].key {
				path[top].name, path[top].key = t, false
				continue
			}
			if t == from && inIPAM() {
				ends = append(ends, int(dec.InputOffset()))
			}
		}
		if top >= 0 && path[top].object { // a value has ended
			path[top].key = true
		}
	}
}
