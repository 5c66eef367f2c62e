// Package cnicall is what Tenure's CNI plugins do alike around a call: it goes
// beyond the CNI library where that answers too late or too little.
package cnicall

import (
	"encoding/json"
	"io"

	"github.com/containernetworking/cni/pkg/ns"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
)

// CheckNetns reports, before anything is done, what the library reports after an
// ADD: that CNI_NETNS is the network namespace that the plugin runs in. Its error
// is nil, untyped, for nil.
func CheckNetns(args *skel.CmdArgs) error {
	if same, e := ns.CheckNetNS(args.Netns); e == nil && same && !overridden(args) {
		return types.NewError(types.ErrInvalidNetNS, "CNI_NETNS is the network namespace that the plugin runs in",
			"set CNI_NETNS_OVERRIDE=1 if that is meant")
	}
	return nil
}

// overridden reports whether the caller says that plugin and container may share
// their network namespace, as the library reads it.
func overridden(args *skel.CmdArgs) bool {
	switch args.NetnsOverride {
	case "1", "true", "TRUE", "True":
		return true
	default:
		return false
	}
}

// VersionOf returns the CNI version of a configuration, or "".
func VersionOf(stdin []byte) string {
	v, err := (&version.ConfigDecoder{}).Decode(stdin)
	if err != nil {
		return ""
	}
	return v
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
