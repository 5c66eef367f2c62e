package local

import (
	"cmp"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/tenure-ipam/tenure/ipam/netns"
	"github.com/tenure-ipam/tenure/ipam/node/store"
)

// A host is the machine that a call runs on, in its present boot.
type host struct {
	// machine tells the machine from others, and boot this boot from others. They are empty where
	// that cannot be told.
	machine, boot string
	// seesHost says that this process is in the host's process namespace.
	seesHost bool
	// inUse returns the network namespaces that processes are in. It fails where that cannot be
	// told of all processes.
	inUse func() (map[string]bool, error)
}

// here returns the host of this process.
func here() host {
	h := host{boot: read("/proc/sys/kernel/random/boot_id"), seesHost: netns.SeesHost(), inUse: netns.OfProcesses}
	// Each of them alone may be a copy: the disk's of another machine, the firmware's that of the
	// machine around this one.
	ids := []string{read("/sys/class/dmi/id/product_uuid"), read("/etc/machine-id")}
	h.machine = strings.Join(slices.DeleteFunc(ids, func(id string) bool { return id == "" }), "+")
	return h
}

// read returns what a small file says, or nothing.
func read(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.ToLower(strings.TrimSpace(string(text)))
}

// mark is what is recorded of the host with an attachment: see [store.Attachment]. It is empty
// where the boot cannot be told.
func (h host) mark() string {
	if h.boot == "" {
		return ""
	}
	return h.machine + "/" + h.boot
}

// An origin says where an attachment was made, as far as its record tells.
type origin uint8

// The origins.
const (
	unknown     origin = iota // by an earlier version of Tenure, or where a host cannot be told
	thisBoot                  // on this machine, in its present boot
	earlierBoot               // on this machine, before that: no namespace is left of it
	elsewhere                 // on another machine, of whose namespaces nothing can be told here
)

// originOf returns where x was made. No two kernels have one boot ID: it tells more than the
// machine's.
func (h host) originOf(x store.Attachment) origin {
	machine, boot, marked := strings.Cut(x.Boot, "/")
	switch {
	case !marked || h.boot == "":
		return unknown
	case boot == h.boot:
		return thisBoot
	case machine == "" || h.machine == "":
		return unknown
	case machine == h.machine:
		return earlierBoot
	}
	return elsewhere
}

// claim records that this machine uses the store, and returns the machine that had used it last,
// if that is another one.
func (h host) claim(tx *store.Tx) (other string, err error) {
	id, err := tx.Identity()
	if err != nil || h.machine == "" || id.Machine == h.machine {
		return "", err
	}
	other, id.Machine = id.Machine, h.machine
	return other, tx.PutIdentity(id)
}

// gone reports whether the namespace of x is gone, as this process sees it.
func (h host) gone(x store.Attachment) bool {
	from := h.originOf(x)
	return from == earlierBoot || from != elsewhere && netns.Gone(x.Netns, x.NetnsID)
}

// vanished returns the attachments whose network namespaces are provably gone, the oldest first: of
// an earlier boot of this machine; or of this boot, with nothing at their path and without a
// process in them. A process may be in one whose path is gone: a container that shares another's.
func (h host) vanished(tx *store.Tx) (all []store.Attachment, err error) {
	processes := sync.OnceValues(h.inUse)
	empty := func(id string) bool {
		inUse, err := processes()
		return err == nil && !inUse[id]
	}
	for x, err := range tx.Attachments() {
		if err != nil {
			return nil, err
		}
		switch h.originOf(x) {
		case earlierBoot:
			all = append(all, x)
		case thisBoot:
			if h.seesHost && netns.SurelyGone(x.Netns, x.NetnsID, true) && empty(x.NetnsID) {
				all = append(all, x)
			}
		case unknown, elsewhere:
		}
	}
	slices.SortFunc(all, func(a, b store.Attachment) int { return cmp.Compare(a.Generation, b.Generation) })
	return all, nil
}
