package delegate

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/tenure-ipam/tenure/ipam/plainjson"
)

// fullOf returns a result, whose JSON is text, in the newest version. It refuses one
// with elements that are null: the CNI library reads them, and falls over them when
// it converts.
func fullOf(result types.Result, text json.RawMessage) (*types100.Result, error) {
	raw, err := object(text)
	if err != nil {
		return nil, fmt.Errorf("its result: %w", err)
	}
	for key, list := range plainjson.Members(raw) {
		switch string(key) {
		case "interfaces", "ips", "routes":
			if list[0] != '[' {
				continue // null
			}
			for item := range plainjson.Items(list) {
				if item[0] == 'n' {
					return nil, errors.New("its result has elements that are null")
				}
			}
		}
	}
	full, err := types100.NewResultFromResult(result)
	if err != nil {
		return nil, fmt.Errorf("its result: %w", err)
	}
	return full, nil
}
