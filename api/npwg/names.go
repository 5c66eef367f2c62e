package npwg

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// CheckName reports whether name can be a NetworkAttachmentDefinition's: units of
// the DNS-1123 label format (3.3), separated by periods as Kubernetes allows it.
func CheckName(name string) error {
	if len(name) > 253 {
		return fmt.Errorf("name %.20q… has more than 253 characters", name)
	}
	for unit := range strings.SplitSeq(name, ".") {
		if !isLabel(unit) {
			return fmt.Errorf("%.80q is no name of a definition: lower-case letters, digits and hyphens, in units separated by periods", name)
		}
	}
	return nil
}

// CheckNamespace reports whether name can be a namespace's: a DNS-1123 label.
func CheckNamespace(name string) error {
	if len(name) > 63 || !isLabel(name) {
		return fmt.Errorf("%.80q is no name of a namespace: up to 63 lower-case letters, digits and hyphens", name)
	}
	return nil
}

// isLabel reports whether s matches [a-z0-9]([-a-z0-9]*[a-z0-9])?.
func isLabel(s string) bool {
	if s == "" || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; c != '-' && (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// reservedInterfaces are names that the kernel refuses: its settings have directories of
// these names beside those of interfaces.
var reservedInterfaces = []string{".", "..", "all", "default"}

// CheckInterface reports whether an interface of Linux can have just this name: as the
// kernel's dev_valid_name has it, which takes a byte 0xa0 for a space (4.1.2.1.5), and
// without a percent sign, which asks the kernel to choose a number.
func CheckInterface(name string) error {
	bad := func(r rune) bool { return r == '/' || r == ':' || r == '%' || unicode.IsSpace(r) || r == 0 }
	if name == "" || len(name) > 15 || slices.Contains(reservedInterfaces, name) || strings.ContainsFunc(name, bad) || strings.IndexByte(name, 0xa0) >= 0 {
		return fmt.Errorf("%.80q is no interface name: 1 to 15 bytes without slashes, colons, percent signs and spaces, and neither all nor default", name)
	}
	return nil
}
