package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tenure-ipam/tenure/deploy/image"
)

// krewFile is by which krew, the plugin manager of kubectl, installs kubectl tenure.
const krewFile = "krew-tenure.yaml"

// krewHead and krewPlatform are the texts of krewFile: of the version, and of each architecture
// with the address and sum of its archive.
const (
	krewHead = `apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: tenure
spec:
  version: %s
  homepage: ` + repository + `
  shortDescription: See what Tenure, an IPAM for pods, does
  description: |
    Shows who has which address, how full pools are, why a pod is not attached, and
    whether all is as it must be, in a cluster where Tenure gives pods their addresses
    on secondary networks.
  platforms:
`
	krewPlatform = `  - selector:
      matchLabels: {os: linux, arch: %s}
    uri: ` + repository + `/releases/download/%s/%s
    sha256: %s
    bin: kubectl-tenure
`
)

// krew packs kubectl-tenure as krew wants it, with its license, and writes krewFile.
func (r release) krew(root, made string) error {
	names := map[string]string{}
	for _, arch := range r.Archs {
		name := "kubectl-tenure-linux-" + arch
		names[arch] = name + ".tar.gz"
		err := image.WriteTarGz(filepath.Join(made, names[arch]), map[string]string{
			"kubectl-tenure": filepath.Join(made, name), "LICENSE": filepath.Join(root, "LICENSE"),
		}, 0o755)
		if err != nil {
			return err
		}
	}
	all, err := sumsOf(made)
	if err != nil {
		return err
	}
	var text strings.Builder
	fmt.Fprintf(&text, krewHead, r.Version)
	for _, arch := range r.Archs {
		fmt.Fprintf(&text, krewPlatform, arch, r.Version, names[arch], all[names[arch]])
	}
	return os.WriteFile(filepath.Join(made, krewFile), []byte(text.String()), 0o644)
}
