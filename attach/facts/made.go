package facts

// Made says when something was said, without the wall clock, which may be set back:
// in which boot of the machine, and how many nanoseconds after its beginning.
type Made struct {
	Boot  string `json:"boot,omitempty"`
	After int64  `json:"after,omitempty"`
}

// Before reports whether m is older than other. Of two boots the present one, boot, is
// the later; of any others, and of what does not say when it was made, as an earlier
// version of the plugin, nobody knows.
func (m Made) Before(other Made, boot string) bool {
	switch m.Boot {
	case "":
		return false
	case other.Boot:
		return m.After < other.After
	}
	return other.Boot == boot && boot != ""
}
