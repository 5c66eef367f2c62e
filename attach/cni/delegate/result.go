package delegate

import (
	"errors"
	"fmt"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	types040 "github.com/containernetworking/cni/pkg/types/040"
	types100 "github.com/containernetworking/cni/pkg/types/100"
)

// fullOf returns a result in the newest version. It refuses a result with elements that are null or
// incomplete: the CNI library accepts them, and panics when it converts them.
func fullOf(result types.Result) (*types100.Result, error) {
	null := false
	switch r := result.(type) {
	case *types100.Result:
		null = slices.Contains(r.Interfaces, nil) || slices.Contains(r.IPs, nil) || slices.Contains(r.Routes, nil)
	case *types040.Result:
		null = slices.Contains(r.Interfaces, nil) || slices.Contains(r.IPs, nil) || slices.Contains(r.Routes, nil)
	}
	if null {
		return nil, errors.New("its result has elements that are null")
	}
	full, err := types100.NewResultFromResult(result)
	if err != nil {
		return nil, fmt.Errorf("its result: %w", err)
	}
	// Written down, they would not read again.
	if slices.ContainsFunc(full.IPs, func(ip *types100.IPConfig) bool { return len(ip.Address.IP) == 0 }) {
		return nil, errors.New("its result has an element of ips without an address")
	}
	if slices.ContainsFunc(full.Routes, func(r *types.Route) bool { return len(r.Dst.IP) == 0 }) {
		return nil, errors.New("its result has a route without a destination")
	}
	return full, nil
}
