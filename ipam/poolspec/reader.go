package poolspec

import (
	"slices"
	"sync"
)

// A Reader is [ParseConfig] for a process that gets the same configurations again and again. All
// interfaces of a network have the same text, and differ only in CNI_ARGS unless their pods ask for
// something. It parses such a text once. The zero Reader is ready; it may be used concurrently.
type Reader struct {
	mu    sync.Mutex
	known map[string]*Config // guarded by mu; by their texts, without CNI_ARGS
}

// Bounds of what a Reader keeps. A node has a few networks. If a runtime makes a text for each pod,
// as with a MAC address, such texts push the others out, which are then parsed again.
const (
	maxKnown     = 64
	maxKnownText = 16 << 10
)

// ParseConfig does what the function [ParseConfig] does. The results share memory with each
// other.
func (r *Reader) ParseConfig(stdin []byte, cniArgs string) (*Config, error) {
	r.mu.Lock()
	known := r.known[string(stdin)]
	r.mu.Unlock()
	if known != nil {
		p := parser{faults: faults{kind: ErrConfig}, cfg: *known}
		if ip := p.cniArgs(cniArgs); ip == "" && p.n == 0 && len(p.cfg.Ignored) == len(known.Ignored) {
			return &p.cfg, nil
		}
		// CNI_ARGS say more than whose interface it is.
	}
	c, err := ParseConfig(stdin, cniArgs)
	if err == nil && known == nil && len(stdin) <= maxKnownText && c.ofAnyInterface() {
		r.keep(stdin, *c)
	}
	return c, err
}

// ofAnyInterface reports whether nothing but c's Pod is one interface's alone.
func (c *Config) ofAnyInterface() bool {
	return len(c.Requested) == 0 && c.PrevResult == nil && !c.HasValidAttachments && !slices.ContainsFunc(c.Ignored, isOfArgs)
}

// keep makes c, less its Pod, what stdin was read as.
func (r *Reader) keep(stdin []byte, c Config) {
	c.Pod = Pod{}
	c.Ignored = slices.Clip(c.Ignored) // reading CNI_ARGS appends to it
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil || len(r.known) >= maxKnown {
		r.known = map[string]*Config{}
	}
	r.known[string(stdin)] = &c
}
