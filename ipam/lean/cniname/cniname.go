// Package cniname checks the names of a CNI call as package utils of the CNI library
// does, in its words. The library compiles regular expressions for it before main,
// which a plugin would pay for in each of its processes.
package cniname

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/containernetworking/cni/pkg/types"
)

// maxInterface is the greatest length of an interface's name in Linux.
const maxInterface = 15

// CheckContainerID reports what CNI does not take for a container's ID.
func CheckContainerID(id string) *types.Error {
	switch {
	case id == "":
		return types.NewError(types.ErrUnknownContainer, "missing containerID", "")
	case !isName(id):
		return types.NewError(types.ErrInvalidEnvironmentVariables, "invalid characters in containerID", id)
	}
	return nil
}

// CheckNetwork reports what CNI does not take for a network's name.
func CheckNetwork(name string) *types.Error {
	switch {
	case name == "":
		return types.NewError(types.ErrInvalidNetworkConfig, "missing network name:", "")
	case !isName(name):
		return types.NewError(types.ErrInvalidNetworkConfig, "invalid characters found in network name", name)
	}
	return nil
}

// CheckInterface reports what CNI does not take for an interface's name.
func CheckInterface(name string) *types.Error {
	switch {
	case name == "":
		return types.NewError(types.ErrInvalidEnvironmentVariables, "interface name is empty", "")
	case len(name) > maxInterface:
		return types.NewError(types.ErrInvalidEnvironmentVariables, "interface name is too long", fmt.Sprintf("interface name should be less than %d characters", maxInterface+1))
	case name == "." || name == "..":
		return types.NewError(types.ErrInvalidEnvironmentVariables, "interface name is . or ..", "")
	case strings.ContainsFunc(name, func(r rune) bool { return r == '/' || r == ':' || unicode.IsSpace(r) }):
		return types.NewError(types.ErrInvalidEnvironmentVariables, "interface name contains / or : or whitespace characters", "")
	}
	return nil
}

// isName reports whether s is what CNI takes for a container's ID or a network's name.
func isName(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case i > 0 && (c == '_' || c == '.' || c == '-'):
		default:
			return false
		}
	}
	return s != ""
}
