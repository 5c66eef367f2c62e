package delegate

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// A waiting is a plugin whose process runs and waits for its configuration: it is not called yet.
// Until a plugin reads its configuration takes longer than the journal takes to sync, so both
// happen at the same time.
type waiting struct {
	x     *executor
	p     *process
	in    *os.File // the writing end of its standard input
	stdin []byte   // what it is to be given
}

// startAhead starts a plugin that is to be called in a moment. It returns nil where that
// cannot be, and the plugin has to be run as any other, which also tells why.
func (x *executor) startAhead(path string, stdin []byte, environ []string) *waiting {
	var ends [2]int
	if unix.Pipe2(ends[:], unix.O_CLOEXEC) != nil {
		return nil
	}
	out, in := os.NewFile(uintptr(ends[0]), "stdin"), os.NewFile(uintptr(ends[1]), "stdin")
	defer out.Close() // the plugin has it
	// The configuration must fit into the pipe: the plugin may not read it, and a process that the
	// plugin leaves behind may keep the pipe open for good.
	if size, err := unix.FcntlInt(in.Fd(), unix.F_GETPIPE_SZ, 0); err != nil || len(stdin) > size {
		_ = in.Close() // nobody has it
		return nil
	}
	p, err := x.start(path, out, environ)
	if err != nil {
		_ = in.Close() // nobody has it
		return nil
	}
	return &waiting{x: x, p: p, in: in, stdin: stdin}
}

// call gives the plugin its configuration, and returns what it answers.
func (w *waiting) call() ([]byte, error) {
	_, err := w.in.Write(w.stdin)
	if errors.Is(err, syscall.EPIPE) {
		err = nil // it has ended without reading, and says why
	}
	err = errors.Join(err, w.in.Close())
	stdout, stderr, ended := w.x.wait(w.p)
	return w.x.outcome(stdout, stderr, errors.Join(ended, err))
}

// end ends a plugin that is not called. It kills the plugin's process group, for the plugin may be
// a script that has another program read its input. It does so before it closes the input, which
// the plugin could take for an empty configuration. w may be nil.
func (w *waiting) end() error {
	if w == nil {
		return nil
	}
	defer w.p.close()
	if err := syscall.Kill(-w.p.pid, syscall.SIGKILL); err != nil {
		_ = w.in.Close() // else it might not end
		_ = w.p.ended()
		return fmt.Errorf("end %s, which was not called: %w", w.p.path, err)
	}
	_ = w.p.ended() // it was killed
	return errors.Join(endGroup(w.p.pid), w.in.Close())
}
