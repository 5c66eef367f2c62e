package fleet

import (
	"sync/atomic"
	"time"

	"github.com/tenure-ipam/tenure/cmd/tenured/daemon"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Clock is the machine's clock, moved. The time since boot never goes back.
type Clock struct {
	daemon.Clock
	Wall, Boot atomic.Int64 // how far it has been moved; time.Durations
}

// Now implements sched.Clock.
func (c *Clock) Now() protocol.Instant {
	now := c.Clock.Now()
	now.Wall = now.Wall.Add(time.Duration(c.Wall.Load()))
	now.Boot += time.Duration(c.Boot.Load())
	return now
}
