package delegate

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
)

// fullOf returns a result in the newest version. It refuses one with elements that
// are null: the CNI library reads them, and falls over them when it converts.
func fullOf(result types.Result) (*types100.Result, error) {
	text, err := json.Marshal(result)
	if err != nil {
		return nil, fmt.Errorf("its result: %w", err)
	}
	var lists struct {
		Interfaces, IPs, Routes []any
	}
	if err := json.Unmarshal(text, &lists); err != nil {
		return nil, fmt.Errorf("its result: %w", err)
	}
	for _, list := range [][]any{lists.Interfaces, lists.IPs, lists.Routes} {
		if slices.Contains(list, nil) {
			return nil, errors.New("its result has elements that are null")
		}
	}
	full, err := types100.NewResultFromResult(result)
	if err != nil {
		return nil, fmt.Errorf("its result: %w", err)
	}
	return full, nil
}
