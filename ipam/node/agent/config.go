package agent

import (
	"errors"
	"fmt"
	"time"

	"github.com/tenure-ipam/tenure/ipam/delqueue"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Config configures an [Agent].
type Config struct {
	// Node is the name of the node that the agent serves.
	Node protocol.NodeName

	// Machine identifies the machine, Boot its current boot. The registration names both.
	Machine, Boot string

	// Fence is F: without an accepted heartbeat for so long the agent gives out
	// nothing new, and others may take its leases a minute later if its Node is
	// gone. 0 means never by time. All agents and the controller should agree.
	Fence time.Duration

	// JournalDir is where the plugin leaves DELs that found no agent.
	JournalDir string

	// Wait is how long an ADD waits for a claim, a pool, a block or a grant before it
	// answers "try again later".
	Wait time.Duration

	// Idle is how long a lease or a use that nothing needs is kept.
	Idle time.Duration

	// KeepRequest is how long a request to the cluster that nothing rests on is kept
	// after the last try of its ADD.
	KeepRequest time.Duration

	// PublishEvery is how often at most a lease's status is written.
	PublishEvery time.Duration

	// SweepEvery is how far apart the two looks are that make an attachment
	// garbage.
	SweepEvery time.Duration

	// Probes is how many blocks an acquire tries before the cluster is asked for
	// addresses.
	Probes int

	// Parallel is how many leases of a pool are acquired at once.
	Parallel int
}

// DefaultConfig returns the configuration that agents of a cluster should share, for
// node. Its Machine and Boot are left to the caller.
func DefaultConfig(node protocol.NodeName) Config {
	return Config{
		Node: node, Fence: 15 * time.Minute, JournalDir: delqueue.DefaultDir, Wait: 5 * time.Second, Idle: time.Minute,
		KeepRequest: 2 * time.Minute, PublishEvery: 30 * time.Second, SweepEvery: 30 * time.Second, Probes: 8, Parallel: 8,
	}
}

// Validate reports every fault of c.
func (c Config) Validate() error {
	var errs []error
	for name, value := range map[string]string{"Node": string(c.Node), "Machine": c.Machine, "Boot": c.Boot, "JournalDir": c.JournalDir} {
		if value == "" {
			errs = append(errs, fmt.Errorf("%s is empty", name))
		}
	}
	if c.Fence < 0 || c.Fence%time.Second != 0 || c.Fence > protocol.MaxFence {
		errs = append(errs, fmt.Errorf("Fence is %v, must be whole seconds, at most %v, or 0 for never", c.Fence, protocol.MaxFence))
	}
	for name, value := range map[string]time.Duration{"Wait": c.Wait, "Idle": c.Idle, "KeepRequest": c.KeepRequest, "PublishEvery": c.PublishEvery, "SweepEvery": c.SweepEvery} {
		if value <= 0 {
			errs = append(errs, fmt.Errorf("%s is %v, must be positive", name, value))
		}
	}
	if c.Probes < 1 || c.Parallel < 1 {
		errs = append(errs, fmt.Errorf("Probes is %d and Parallel %d, both must be positive", c.Probes, c.Parallel))
	}
	return errors.Join(errs...)
}
