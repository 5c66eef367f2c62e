package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// suffix ends the names of segments.
const suffix = ".jsonl"

// Pattern matches the names of the files in a history's directory.
const Pattern = "*" + suffix

// maxLine is the longest line that is read. What an event has is bounded by the store's keys and by
// Kubernetes' names.
const maxLine = 64 << 10

// A segment is one file.
type segment struct {
	number uint64
	begun  time.Time // by its first line
	size   int64
}

func pathOf(dir string, number uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%010d%s", number, suffix))
}

// segmentsIn returns the numbers of the segments in dir, ascending. A directory that is not there
// is an error.
func segmentsIn(dir string) (numbers []uint64, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), suffix)
		if n, err := strconv.ParseUint(name, 10, 64); ok && err == nil {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// scanSegment passes the events of a segment on that contain the text about; nil is all. Lines that
// do not read are left out. What follows the last end of a line is of a write that was cut off:
// whole is how many bytes there are before it.
func scanSegment(r io.Reader, about []byte, each func(Event)) (whole int64, err error) {
	in := bufio.NewReaderSize(r, maxLine)
	for {
		line, err := in.ReadSlice('\n')
		length := int64(len(line))
		for errors.Is(err, bufio.ErrBufferFull) {
			var more []byte
			more, err = in.ReadSlice('\n')
			length += int64(len(more))
			line = nil // no line is so long
		}
		if errors.Is(err, io.EOF) {
			return whole, nil
		}
		if err != nil {
			return whole, err
		}
		whole += length
		var e Event
		if bytes.Contains(line, about) && json.Unmarshal(line, &e) == nil && e.valid() {
			each(e)
		}
	}
}

// valid reports whether e says what its kind has to. No time is before the zero time.
func (e Event) valid() bool {
	if !e.Time.After(time.Time{}) {
		return false
	}
	switch e.What {
	case Begun:
		return true
	case Given, Freed:
		return e.Address.IsValid() && e.Address.Zone() == ""
	}
	return false
}

// readSegment is [scanSegment] of a file.
func readSegment(dir string, number uint64, each func(Event)) (whole int64, err error) {
	f, err := os.Open(pathOf(dir, number))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return scanFile(f, nil, each)
}

// scanFile is [scanSegment] of an open file, from its beginning.
func scanFile(f *os.File, about []byte, each func(Event)) (whole int64, err error) {
	if _, err = f.Seek(0, io.SeekStart); err == nil {
		whole, err = scanSegment(f, about, each)
	}
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", f.Name(), err)
	}
	return whole, nil
}

// segmentFiles are open segments, ascending.
type segmentFiles []*os.File

// openSegments opens the segments in dir, which list lists. What is open of one that an agent
// removes is in a later one, so they are listed again where one is gone.
func openSegments(dir string, list func(string) ([]uint64, error)) (files segmentFiles, err error) {
	for range 3 {
		var numbers []uint64
		if numbers, err = list(dir); err != nil {
			return nil, err
		}
		if files, err = openEach(dir, numbers); !errors.Is(err, fs.ErrNotExist) {
			return files, err
		}
	}
	return nil, fmt.Errorf("read %s: the agent removes files faster than they are opened: ask again", dir)
}

func openEach(dir string, numbers []uint64) (files segmentFiles, err error) {
	for _, n := range numbers {
		f, err := os.Open(pathOf(dir, n))
		if err != nil {
			files.close()
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

func (files segmentFiles) close() {
	for _, f := range files {
		_ = f.Close() // it was only read
	}
}

// appendLine appends the line of e.
func appendLine(to []byte, e Event) ([]byte, error) {
	line, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("write an event of %s: %w", e.Address, err)
	}
	return append(append(to, line...), '\n'), nil
}

// remove removes the segments in dir, and the directory. It reports whether there were any.
func remove(dir string) (some bool, err error) {
	numbers, err := segmentsIn(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	for _, n := range numbers {
		err = errors.Join(err, os.Remove(pathOf(dir, n)))
	}
	return len(numbers) > 0, errors.Join(err, os.Remove(dir))
}
