package npwg

import (
	"fmt"
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

// CheckInterface reports whether name is a valid Linux interface name, as the
// kernel's dev_valid_name has it (4.1.2.1.5).
func CheckInterface(name string) error {
	bad := func(r rune) bool { return r == '/' || r == ':' || unicode.IsSpace(r) || r == 0 }
	if name == "" || len(name) > 15 || name == "." || name == ".." || strings.ContainsFunc(name, bad) {
		return fmt.Errorf("%.80q is no interface name: 1 to 15 bytes without slashes, colons and spaces", name)
	}
	return nil
}
