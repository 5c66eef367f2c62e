package cniresults

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// kind marks the only form of record that is known.
const kind = "cniCacheV1"

// maxSize bounds a file that is read, in bytes: a result with its configuration takes
// some kilobytes, and a file has those of one container. It is more than what a journal
// of the meta-plugin may have of them.
const maxSize = 32 << 20

// SuffixTemp ends the name of a file that the meta-plugin is writing: see [IsTemp].
const SuffixTemp = ".tmp"

// IsTemp reports whether a file of that name is one that the meta-plugin is writing, and none of
// the cache. The meta-plugin's files end in a dot and 16 hexadecimal digits. One of the CNI
// library ends in the name of an interface, of 15 bytes at most. A pod may choose that name: it
// must not pass for a file that is being written.
func IsTemp(name string) bool {
	final, ok := strings.CutSuffix(name, SuffixTemp)
	dot := strings.LastIndexByte(final, '.')
	return ok && dot >= 0 && len(final)-dot-1 == 16 && strings.Trim(final[dot+1:], "0123456789abcdef") == ""
}

// A Record is one attachment in the form of the CNI library's cache: how its plugins
// were called, and what they answered.
type Record struct {
	Kind        string `json:"kind"`
	ContainerID string `json:"containerId"`
	// Config is the network configuration, or the list of plugins.
	Config      []byte `json:"config"`
	IfName      string `json:"ifName"`
	NetworkName string `json:"networkName"`
	NetNS       string `json:"netns,omitempty"`
	// CNIArgs are the pairs of CNI_ARGS.
	CNIArgs        [][2]string                `json:"cniArgs,omitempty"`
	CapabilityArgs map[string]json.RawMessage `json:"capabilityArgs,omitempty"`
	Result         json.RawMessage            `json:"result"`
}

// check reports what is not as the library writes it.
func (r *Record) check() error {
	switch {
	case r.Kind != kind:
		return fmt.Errorf("kind is %q, want %q", r.Kind, kind)
	case r.NetworkName == "" || r.ContainerID == "" || r.IfName == "":
		return fmt.Errorf("network %q, container %q and interface %q: one is missing", r.NetworkName, r.ContainerID, r.IfName)
	}
	return nil
}

// Line returns r as a line of JSON. Its Kind is set.
func (r Record) Line() ([]byte, error) {
	r.Kind = kind
	text, err := json.Marshal(r)
	return append(text, '\n'), err
}

// parseRecords reads the text of a file. That has one record, as the CNI library keeps it, or a
// record in each line, of which the last one for a network and an interface counts. An error says
// what cannot be read; the other records are returned all the same.
func parseRecords(text []byte) (all []Record, err error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, io.ErrUnexpectedEOF
	}
	var errs []error
	for line := range bytes.Lines(text) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var r Record
		err := json.Unmarshal(line, &r)
		if err == nil {
			err = r.check()
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all = slices.DeleteFunc(all, func(earlier Record) bool { return earlier.NetworkName == r.NetworkName && earlier.IfName == r.IfName })
		all = append(all, r)
	}
	return all, errors.Join(errs...)
}

// ReadRecords reads a file as parseRecords reads its text.
func ReadRecords(path string) ([]Record, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // it was only read
	text, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxSize {
		return nil, fmt.Errorf("larger than %d bytes", maxSize)
	}
	return parseRecords(text)
}
