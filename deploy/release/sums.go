package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	// sumsFile has the sums of all other files, as sha256sum writes and checks them.
	sumsFile = "SHA256SUMS"
	// signatureFile has the signature of sumsFile, where the release is signed.
	signatureFile = sumsFile + ".sig"
)

// sums are SHA-256 sums of files by their names, in hexadecimal.
type sums map[string]string

// sumsOf returns the sums of what a directory has, but for sumsFile and its signature.
func sumsOf(dir string) (sums, error) {
	there, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	all := sums{}
	for _, f := range there {
		if f.Name() == sumsFile || f.Name() == signatureFile {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(text)
		all[f.Name()] = hex.EncodeToString(sum[:])
	}
	return all, nil
}

func writeSums(dir string) error {
	all, err := sumsOf(dir)
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&text, "%s  %s\n", all[name], name)
	}
	return os.WriteFile(filepath.Join(dir, sumsFile), []byte(text.String()), 0o644)
}

// readSums reads sumsFile of a release.
func readSums(dir string) (sums, error) {
	file := filepath.Join(dir, sumsFile)
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	all := sums{}
	for line := range strings.Lines(string(text)) {
		sum, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		if !ok {
			return nil, fmt.Errorf("%s: line %q must be a sum, two spaces and a name", file, line)
		}
		all[name] = sum
	}
	return all, nil
}

// compare returns an error that names each file in which there, what the directory dir has,
// differs from want, of which source says whose sums they are.
func compare(dir string, there, want sums, source string) error {
	var errs []error
	names := maps.Clone(there)
	maps.Copy(names, want)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		file := filepath.Join(dir, name)
		switch {
		case there[name] == "":
			errs = append(errs, fmt.Errorf("%s is missing, and %s has it", file, source))
		case want[name] == "":
			errs = append(errs, fmt.Errorf("%s is there, and %s has no such file", file, source))
		case there[name] != want[name]:
			errs = append(errs, fmt.Errorf("%s differs: its SHA-256 is %s, and by %s it is %s", file, there[name], source, want[name]))
		}
	}
	return errors.Join(errs...)
}
