package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/attach/plan"
	"github.com/tenure-ipam/tenure/ipam/atomicfile"
	"github.com/tenure-ipam/tenure/ipam/lean/plainjson"
)

// version is the version of the journals that this program writes, and the
// highest that it reads.
const version = 1

// A Key names an attachment of the meta-plugin, as the runtime does.
type Key struct {
	ContainerID string `json:"containerID"`
	// Network is the name in the meta-plugin's own configuration.
	Network string `json:"network"`
	IfName  string `json:"ifName"`
}

// A Head is the first line: all that is needed to undo.
type Head struct {
	Version int `json:"version"`
	Key
	// Netns is CNI_NETNS of the ADD.
	Netns string `json:"netns"`
	// Boot is the ID of the boot in which the ADD ran.
	Boot string    `json:"boot"`
	Plan plan.Plan `json:"plan"`
}

// body returns h as JSON, as its tags say.
func (h Head) body() []byte {
	b := strconv.AppendInt(append(make([]byte, 0, 4096), `{"version":`...), int64(h.Version), 10)
	b = plainjson.AppendText(plainjson.AppendKey(b, "containerID"), h.ContainerID)
	b = plainjson.AppendText(plainjson.AppendKey(b, "network"), h.Network)
	b = plainjson.AppendText(plainjson.AppendKey(b, "ifName"), h.IfName)
	b = plainjson.AppendText(plainjson.AppendKey(b, "netns"), h.Netns)
	b = plainjson.AppendText(plainjson.AppendKey(b, "boot"), h.Boot)
	return append(h.Plan.AppendTo(plainjson.AppendKey(b, "plan")), '}')
}

// An Entry is what a journal says.
type Entry struct {
	Head
	// Steps are those of the plan, at the same places.
	Steps []Step
	// Answered says that the runtime was told of success, or that it was about to
	// be.
	Answered bool
	// Report is what the agent is to be told; nil if there is nothing yet.
	Report *facts.Report
	// Lost says why lines after the head do not read, empty if all do: then a step
	// may have begun whose beginning is not seen.
	Lost string
}

// A Step is how far a step of the plan has come.
type Step struct {
	// Began says that a delegate may have run.
	Began bool
	// Undone says that the step's DEL has succeeded.
	Undone bool
	// Result is the last one of its ADD, in the version of its configuration; nil
	// if there is none.
	Result json.RawMessage
}

// Ended reports whether the step has left nothing behind, or has not begun. Of a pod that was
// answered, it is one that a change of the running pod has ended, or was about to begin.
func (s Step) Ended() bool { return s.Undone || !s.Began }

// Begun returns the numbers of the steps that may have left something behind, in
// the plan's order. boot is the ID of this boot: lines of an earlier one may have
// been lost with the machine.
func (e *Entry) Begun(boot string) (steps []int) {
	certain := e.Lost == "" && e.Boot == boot && boot != ""
	for i, s := range e.Steps {
		if !s.Undone && (s.Began || !certain) {
			steps = append(steps, i)
		}
	}
	return steps
}

// Live returns the numbers of the steps that are attached, in the plan's order, and of those of
// which only a part may be, because who worked on them was killed. It is for journals of this boot
// of which nothing is lost.
func (e *Entry) Live() (whole, part []int) {
	for i, s := range e.Steps {
		switch {
		case s.Ended():
		case s.Result == nil:
			part = append(part, i)
		default:
			whole = append(whole, i)
		}
	}
	return whole, part
}

// text returns the journal that says what e says.
func (e *Entry) text() []byte {
	text := atomicfile.Seal(e.Head.body())
	line := func(body []byte) { text = append(text, atomicfile.Seal(body)...) }
	for i, s := range e.Steps {
		switch {
		case s.Result != nil:
			line(done(i, s.Result))
		case s.Began:
			line(began(i))
		}
		if s.Undone {
			line(undone(i))
		}
	}
	if e.Report != nil {
		line(append(e.Report.AppendTo([]byte(`{"report":`)), '}'))
	}
	if e.Answered {
		line([]byte(`{"answered":true}`))
	}
	return text
}

// The lines about a step.
func began(step int) []byte  { return fmt.Appendf(nil, `{"began":%d}`, step) }
func undone(step int) []byte { return fmt.Appendf(nil, `{"undone":%d}`, step) }
func done(step int, result []byte) []byte {
	return fmt.Appendf(nil, `{"done":%d,"result":%s}`, step, result)
}

// A DamagedError says that a journal exists and does not read. What it was about
// is unknown, which is not the same as nothing.
type DamagedError struct {
	Path string
	Err  error
}

// Error says which file is damaged and how.
func (e *DamagedError) Error() string {
	return fmt.Sprintf("journal %s is damaged: %v", e.Path, e.Err)
}

// Unwrap returns what is wrong with the file.
func (e *DamagedError) Unwrap() error { return e.Err }

// errNewer is the error of a journal of a later version, which is not damaged.
var errNewer = errors.New("a newer version of Tenure wrote it")

// record is a line after the head: one of its members is set.
type record struct {
	Began    *int            `json:"began,omitempty"`
	Undone   *int            `json:"undone,omitempty"`
	Done     *int            `json:"done,omitempty"`
	Result   json.RawMessage `json:"result,omitempty"` // of Done
	Report   *facts.Report   `json:"report,omitempty"`
	Answered bool            `json:"answered,omitempty"`
}

// decode reads a whole journal. size is how much of text is lines: what follows is
// the beginning of a line whose writer was killed, which means nothing.
func decode(text []byte) (e *Entry, size int, err error) {
	line, rest, _ := cutLine(text)
	body, err := atomicfile.Open(line)
	if err != nil {
		return nil, 0, fmt.Errorf("its first line: %w", err)
	}
	e = &Entry{}
	if err := json.Unmarshal(body, &e.Head); err != nil {
		return nil, 0, fmt.Errorf("its first line: %w", err)
	}
	if e.Version > version {
		return nil, 0, fmt.Errorf("%w: version %d, this program reads %d", errNewer, e.Version, version)
	}
	if e.Version < 1 || e.ContainerID == "" || e.IfName == "" {
		return nil, 0, errors.New("its first line is not that of a journal")
	}
	e.Steps = make([]Step, len(e.Plan.Steps))
	size = len(line)
	for n := 2; ; n++ {
		line, more, whole := cutLine(rest)
		if !whole {
			return e, size, nil
		}
		if err := e.apply(line); err != nil && e.Lost == "" {
			e.Lost = fmt.Sprintf("line %d: %v", n, err)
		}
		size += len(line)
		rest = more
	}
}

// cutLine returns the first line of text with its newline; whole is false if text
// has none.
func cutLine(text []byte) (line, rest []byte, whole bool) {
	i := bytes.IndexByte(text, '\n')
	if i < 0 {
		return text, nil, false
	}
	return text[:i+1], text[i+1:], true
}

// apply adds what a line after the head says.
func (e *Entry) apply(line []byte) error {
	body, err := atomicfile.Open(line)
	if err != nil {
		return err
	}
	var r record
	if err := json.Unmarshal(body, &r); err != nil {
		return err
	}
	for _, n := range []*int{r.Began, r.Undone, r.Done} {
		if n != nil && (*n < 0 || *n >= len(e.Steps)) {
			return fmt.Errorf("there is no step %d", *n)
		}
	}
	switch {
	case r.Began != nil:
		e.Steps[*r.Began] = Step{Began: true} // also of one that was undone
	case r.Done != nil:
		e.Steps[*r.Done].Began = true
		e.Steps[*r.Done].Result = r.Result
	case r.Undone != nil:
		e.Steps[*r.Undone].Undone = true
	}
	if r.Report != nil {
		e.Report = r.Report
	}
	e.Answered = e.Answered || r.Answered
	return nil
}
