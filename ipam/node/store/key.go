package store

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxName is the longest text that may be part of a key of the store: far above
// what runtimes use, and far below what bbolt takes.
const maxName = 1024

// A Key names an attachment: the CNI tuple. Its text form,
// "network/container/interface", is what the store sorts by and what logs show.
type Key struct {
	Network     string // the network configuration's name
	ContainerID string
	IfName      string
}

// String returns the text form of k, also of an invalid one.
func (k Key) String() string { return k.Network + "/" + k.ContainerID + "/" + k.IfName }

// MarshalText returns the text form. A part that is empty, longer than 1024
// bytes, not UTF-8, or has a "/" or a control character in it is an error: CNI
// allows none of these.
func (k Key) MarshalText() ([]byte, error) {
	if err := k.check(); err != nil {
		return nil, err
	}
	return k.bytes(), nil
}

func (k Key) bytes() []byte { return []byte(k.String()) }

func (k Key) check() error {
	err := checkName("network name", k.Network)
	if err == nil {
		err = checkName("container ID", k.ContainerID)
	}
	if err == nil {
		err = checkName("interface name", k.IfName)
	}
	if err != nil {
		return fmt.Errorf("attachment %q: %w", k.String(), err)
	}
	return nil
}

// UnmarshalText is the inverse of MarshalText.
func (k *Key) UnmarshalText(text []byte) error {
	network, rest, ok := strings.Cut(string(text), "/")
	container, ifName, ok2 := strings.Cut(rest, "/")
	got := Key{Network: network, ContainerID: container, IfName: ifName}
	if !ok || !ok2 {
		return fmt.Errorf("attachment %q: want network/container/interface", text)
	}
	if err := got.check(); err != nil {
		return err
	}
	*k = got
	return nil
}

// checkName reports why text cannot be a part of a key.
func checkName(what, text string) error {
	switch {
	case text == "":
		return fmt.Errorf("the %s is empty", what)
	case len(text) > maxName:
		return fmt.Errorf("the %s has %d bytes, at most %d are allowed", what, len(text), maxName)
	case !utf8.ValidString(text):
		return fmt.Errorf("the %s %q is not UTF-8", what, text)
	}
	for i := range len(text) {
		if c := text[i]; c == '/' || c < ' ' || c == 0x7f {
			return fmt.Errorf(`the %s %q has a "/" or a control character`, what, text)
		}
	}
	return nil
}
