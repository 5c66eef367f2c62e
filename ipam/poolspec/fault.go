package poolspec

import (
	"encoding/json"
	"errors"
	"fmt"
)

// What kind of text a [Fault] lies in, for the caller that maps errors to CNI
// codes. Every error of [ParseConfig], [ParseRelease] and [ParseNetwork] is one
// of them for [errors.Is].
var (
	// ErrDecode: the configuration is not a JSON object.
	ErrDecode = errors.New("configuration cannot be decoded")
	// ErrConfig: a key of the configuration is missing, unknown or wrong.
	ErrConfig = errors.New("configuration is invalid")
	// ErrUnsupported, which is an ErrConfig: the configuration has a key that is unknown, or that
	// Tenure does not serve.
	ErrUnsupported = fmt.Errorf("%w: a key is not supported", ErrConfig)
	// ErrArgs: CNI_ARGS is wrong.
	ErrArgs = errors.New("CNI_ARGS is invalid")
	// ErrVersion: the configuration's cniVersion cannot express the result.
	ErrVersion = errors.New("cniVersion cannot express the result")
	// ErrPool: a pool's text is wrong.
	ErrPool = errors.New("pool is invalid")
)

// A Fault is one thing that is wrong in a text, where it stands, and what to do
// about it.
type Fault struct {
	// Path says where: "ipam.ranges[0][1].subnet", "spec.ranges[2].start",
	// "CNI_ARGS IP".
	Path string
	// Problem says what is wrong there; it reads on from Path.
	Problem string
	// Remedy says what to do.
	Remedy string

	kind error
}

// Error returns "PATH: PROBLEM; REMEDY".
func (f *Fault) Error() string { return f.Path + ": " + f.Problem + "; " + f.Remedy }

// Unwrap returns the sentinel of the text that f lies in.
func (f *Fault) Unwrap() error { return f.kind }

// maxFaults bounds the faults that are reported of one text: nobody needs to see more at once, and
// a hostile text must not make a long error.
const maxFaults = 32

// faults collects what is wrong in one text.
type faults struct {
	kind error
	list []error
	n    int // how many there were, kept or not
}

// full reports whether further faults would not be kept.
func (fs *faults) full() bool { return len(fs.list) >= maxFaults }

// add reports a fault at path.
func (fs *faults) add(path, problem, remedy string) {
	fs.record(&Fault{Path: path, Problem: problem, Remedy: remedy, kind: fs.kind})
}

// unsupported reports a key that Tenure does not serve. The fault has the key's value, as CNI
// demands.
func (fs *faults) unsupported(path string, value json.RawMessage, problem, remedy string) {
	fs.record(&Fault{Path: path, Problem: fmt.Sprintf("%s: %.80s", problem, value), Remedy: remedy, kind: ErrUnsupported})
}

// record counts f, and keeps it unless there are too many already.
func (fs *faults) record(f *Fault) {
	fs.n++
	if !fs.full() {
		fs.list = append(fs.list, f)
	}
}

// addf adds a fault whose problem needs formatting.
func (fs *faults) addf(path, remedy, format string, args ...any) {
	fs.add(path, fmt.Sprintf(format, args...), remedy)
}

// err returns all faults joined, or nil.
func (fs *faults) err() error { return errors.Join(fs.list...) }
