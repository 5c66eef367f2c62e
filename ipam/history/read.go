package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"time"
)

// An Answer is what a node has to say of an address.
type Answer struct {
	Spans []Span
	Extent
}

// An Extent says what the answer is made of.
type Extent struct {
	Node string `json:"node"`
	// Begins is when the oldest file begins: before that nothing is known but what went on then.
	Begins time.Time `json:"begins,omitzero"`
}

// ErrNone says that a node keeps no history.
var ErrNone = errors.New("this node keeps no history")

// Read returns who had the address at a time from from to to, by the files of a node in dir. It may
// be read while an agent writes there. Without files the error is [ErrNone].
func Read(dir string, address netip.Addr, from, to time.Time) (a Answer, err error) {
	files, err := openSegments(dir, segmentsIn)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(files) == 0 {
		return Answer{}, fmt.Errorf("%w: there are no files in %s", ErrNone, dir)
	}
	if err != nil {
		return Answer{}, err
	}
	defer files.close()
	quoted, err := json.Marshal(address)
	if err != nil {
		return Answer{}, err
	}
	var spans Spans
	for _, f := range files {
		_, err := scanFile(f, quoted, func(e Event) {
			if e.Address == address {
				spans.Add(e)
			}
		})
		if err != nil {
			return Answer{}, err
		}
	}
	for _, s := range spans.All() {
		if s.Overlaps(from, to) {
			a.Spans = append(a.Spans, s)
		}
	}
	_, err = scanFile(files[0], []byte(`"`+Begun+`"`), func(e Event) {
		if e.What == Begun && a.Begins.IsZero() {
			a.Begins, a.Node = e.Time, e.Node
		}
	})
	return a, err
}

// last is the last line of an answer: without it the answer was cut off.
type last struct {
	Extent *Extent `json:"extent"`
}

// Write writes the answer: a line for each span, and one for its extent.
func (a Answer) Write(to io.Writer) error {
	out := json.NewEncoder(to)
	for _, s := range a.Spans {
		if err := out.Encode(s); err != nil {
			return err
		}
	}
	return out.Encode(last{&a.Extent})
}

// ReadAnswer is the inverse of [Answer.Write].
func ReadAnswer(from io.Reader) (a Answer, err error) {
	in := json.NewDecoder(from)
	for {
		var line struct {
			Span
			last
		}
		if err := in.Decode(&line); errors.Is(err, io.EOF) {
			return Answer{}, errors.New("the answer was cut off")
		} else if err != nil {
			return Answer{}, fmt.Errorf("the answer does not read: %w", err)
		}
		if line.Extent != nil {
			a.Extent = *line.Extent
			return a, nil
		}
		a.Spans = append(a.Spans, line.Span)
	}
}
