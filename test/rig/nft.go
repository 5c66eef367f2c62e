package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// nftScript runs Debian's nft with the libraries that were unpacked beside it.
const nftScript = `#!/bin/sh
root=${0%%/*}/.from/nftables
LD_LIBRARY_PATH=$root/%s exec "$root/usr/sbin/nft" "$@"
`

// provideNFT puts nft(8), with which kube-proxy writes its rules, into dir, unless
// the machine has one.
func provideNFT(ctx context.Context, out io.Writer, dir string) error {
	path := filepath.Join(dir, "nft")
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	if found, err := exec.LookPath("nft"); err == nil {
		fmt.Fprintf(out, "rig: nft: using %s\n", found)
		return nil
	}
	fmt.Fprintln(out, "rig: nft: to unpack, out of a Debian package")
	root := filepath.Join(dir, ".from", "nftables")
	// With the libraries that the machine does not have.
	if err := unpacked(ctx, root, "install", "-y", "--download-only", "--no-install-recommends", "nftables"); err != nil {
		return fmt.Errorf("fetch nftables, which kube-proxy runs: %w", err)
	}
	libraries, err := filepath.Glob(filepath.Join(root, "usr/lib/*/libnftables.so.1"))
	if err != nil {
		return err
	}
	if len(libraries) != 1 {
		return fmt.Errorf("%s has %d libraries of nftables; want one", root, len(libraries))
	}
	relative, err := filepath.Rel(root, filepath.Dir(libraries[0]))
	if err != nil {
		return err
	}
	fresh := filepath.Join(root, "nft")
	if err := os.WriteFile(fresh, fmt.Appendf(nil, nftScript, relative), 0o755); err != nil {
		return err
	}
	return os.Rename(fresh, path)
}
