// Package cnicall is what Tenure's CNI plugins do alike around a call, in place of the
// CNI library's package skel: it reads the call, checks it, has it served, and prints
// the error.
package cnicall

import (
	"encoding/json"
	"io"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/tenure-ipam/tenure/ipam/netns"
)

// checkNetns reports that CNI_NETNS is the network namespace that the plugin runs in,
// which is that of its every thread. A path where there is no namespace is none of its
// business.
func checkNetns(args *Args) *types.Error {
	theirs := netns.ID(args.Netns)
	if theirs == "" || args.NetnsOverride == "1" || strings.EqualFold(args.NetnsOverride, "true") {
		return nil
	}
	switch netns.ID("/proc/self/ns/net") {
	case "":
		return types.NewError(types.ErrInvalidNetNS, "get plugin's netns failed", "/proc/self/ns/net cannot be looked at")
	case theirs:
		return types.NewError(types.ErrInvalidNetNS, "CNI_NETNS is the network namespace that the plugin runs in",
			"set CNI_NETNS_OVERRIDE=1 if that is meant")
	}
	return nil
}

// PrintError prints e as the CNI specification has it, with the configuration's
// version: the library leaves cniVersion out. An empty version stands for the
// newest.
func PrintError(w io.Writer, v string, e *types.Error) error {
	if v == "" {
		v = version.Current()
	}
	text, err := json.MarshalIndent(struct {
		CNIVersion string `json:"cniVersion"`
		*types.Error
	}{v, e}, "", "    ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(text, '\n'))
	return err
}
