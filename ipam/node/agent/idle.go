package agent

import (
	"sync"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// idleTimes has since when nothing has rested on a right. The zero value is ready.
type idleTimes struct {
	mu sync.Mutex
	of map[string]protocol.Instant // guarded by mu; by name
}

// since returns since when nothing has rested on a right: from now on, if it was not idle before.
func (i *idleTimes) since(name string, now protocol.Instant) protocol.Instant {
	i.mu.Lock()
	defer i.mu.Unlock()
	if since, ok := i.of[name]; ok {
		return since
	}
	if i.of == nil {
		i.of = map[string]protocol.Instant{}
	}
	i.of[name] = now
	return now
}

// end notes that a right is not idle, or not there any more.
func (i *idleTimes) end(name string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.of, name)
}
