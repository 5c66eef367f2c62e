package delegate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
)

// ReadPrevious reads prevResult of a configuration of CNI's version v: the result of the plugins
// that the runtime has called before the meta-plugin. It is an empty one if there are none.
func ReadPrevious(v string, raw json.RawMessage) (*types100.Result, error) {
	if raw == nil {
		return &types100.Result{}, nil
	}
	result, err := resultOf(v, raw)
	if err != nil {
		return nil, fmt.Errorf("prevResult: %w", err)
	}
	full, err := fullOf(result)
	if err != nil {
		return nil, fmt.Errorf("prevResult: %w", err)
	}
	return full, nil
}

// After returns the result own of a plugin that was called after others, with their result in front
// (CNI, section 5). It changes neither. Behind an empty one it is own.
func After(previous *types100.Result, own types.Result) (types.Result, error) {
	if saysNothing(previous) {
		return own, nil
	}
	full, err := fullOf(own)
	if err != nil {
		return nil, err
	}
	all := &types100.Result{
		CNIVersion: full.CNIVersion,
		Interfaces: slices.Concat(previous.Interfaces, full.Interfaces),
		IPs:        slices.Clone(previous.IPs),
		Routes:     slices.Concat(previous.Routes, full.Routes),
		DNS: types.DNS{
			Nameservers: slices.Concat(previous.DNS.Nameservers, full.DNS.Nameservers),
			Domain:      cmp.Or(full.DNS.Domain, previous.DNS.Domain),
			Search:      slices.Concat(previous.DNS.Search, full.DNS.Search),
			Options:     slices.Concat(previous.DNS.Options, full.DNS.Options),
		},
	}
	for _, ip := range full.IPs {
		ip = ip.Copy()
		if ip.Interface != nil && *ip.Interface >= 0 {
			*ip.Interface += len(previous.Interfaces)
		}
		all.IPs = append(all.IPs, ip)
	}
	return all, nil
}
