// Package slowdisk runs a program whose disk syncs as slowly as a test says, or fails to. The
// program is the one that is shipped, and so are the kernel and the file: before each
// fsync and fdatasync of the program the kernel asks this process (seccomp's user
// notification, Linux 5.19), and goes on when it is answered.
package slowdisk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Disk is what the programs that it starts sync to. The zero Disk is as fast as the
// machine's.
type Disk struct {
	mu      sync.Mutex
	delay   time.Duration // guarded by mu
	changed chan struct{} // guarded by mu; closed when delay is another; nil is not made yet
	errno   unix.Errno    // guarded by mu; of syncs that end from now on
	syncs   int           // guarded by mu
	threads sync.WaitGroup
}

// Slow makes every sync take so much longer, those that are under way too: with 0,
// they end.
func (d *Disk) Slow(delay time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.delay = delay
	if d.changed != nil {
		close(d.changed)
		d.changed = nil
	}
}

// Fail has every sync that has not ended yet come to nothing with an error, 0 for none.
func (d *Disk) Fail(errno unix.Errno) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.errno = errno
}

// Syncs returns how many syncs have begun.
func (d *Disk) Syncs() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.syncs
}

// Wait waits until nothing is kept for any program any more. All have ended, and have
// been waited for.
func (d *Disk) Wait() { d.threads.Wait() }

// Start is cmd.Start for a program on this disk. A thread of this process is kept until
// the program has ended and cmd.Wait has returned; Wait tells when it is gone.
func (d *Disk) Start(cmd *exec.Cmd) error {
	started := make(chan error, 1)
	d.threads.Go(func() {
		// The filter is this thread's, and of what it starts. It is not unlocked, and
		// ends with this goroutine: nothing else of this process runs under the filter.
		runtime.LockOSThread()
		questions, err := filterSyncs()
		if err == nil {
			if err = cmd.Start(); err != nil {
				_ = unix.Close(questions) // nobody asks
			}
		}
		started <- err
		if err == nil {
			d.answer(questions, cmd.Process)
		}
	})
	return <-started
}

// filterSyncs has the kernel ask before this thread syncs a file, and returns where.
func filterSyncs() (questions int, err error) {
	// Of the data that the kernel hands a filter the first word is the number of the call,
	// as the architecture of this program has it; the program has the same.
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_FDATASYNC, Jt: 2},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_FSYNC, Jt: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF},
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return -1, fmt.Errorf("no new privileges: %w", err)
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	// A sync that is asked about goes on waiting when its thread gets a signal, as one on
	// a disk does: Go's runtime sends them to preempt.
	const flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return -1, fmt.Errorf("filter syncs: %w", errno)
	}
	return int(fd), nil
}

// The kernel's question begins with the call's ID, and so does the answer: ID, result,
// error, flags.
const (
	questionSize = 80
	answerSize   = 24
	answerError  = 16
	answerFlags  = 20
)

// answer answers the kernel's questions until the program has been waited for.
func (d *Disk) answer(questions int, program *os.Process) {
	var under sync.WaitGroup
	over := make(chan struct{})
	defer func() {
		close(over)
		under.Wait()
		_ = unix.Close(questions) // nobody asks any more
	}()
	for !errors.Is(program.Signal(unix.Signal(0)), os.ErrProcessDone) {
		// The thread itself is under the filter, so that the end of the program does not
		// show here: it is looked for now and then.
		ready := []unix.PollFd{{Fd: int32(questions), Events: unix.POLLIN}}
		if n, err := unix.Poll(ready, 50); n == 0 || err != nil {
			continue
		}
		var question [questionSize]byte
		if !ask(questions, unix.SECCOMP_IOCTL_NOTIF_RECV, question[:]) {
			continue // who asked has been killed
		}
		under.Go(func() {
			var answer [answerSize]byte
			copy(answer[:8], question[:8])
			if errno := d.sync(over); errno != 0 {
				binary.NativeEndian.PutUint32(answer[answerError:], -uint32(errno))
			} else {
				binary.NativeEndian.PutUint32(answer[answerFlags:], unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE)
			}
			ask(questions, unix.SECCOMP_IOCTL_NOTIF_SEND, answer[:]) // who asked may have been killed
		})
	}
}

// ask makes a request of the filter.
func ask(questions int, request uintptr, arg []byte) bool {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(questions), request, uintptr(unsafe.Pointer(&arg[0])))
	return errno == 0
}

// sync waits as long as a sync that begins now is to take longer, or until the program
// is over, and returns the error that it is to have.
func (d *Disk) sync(over <-chan struct{}) unix.Errno {
	began := time.Now()
	d.mu.Lock()
	d.syncs++
	d.mu.Unlock()
	for {
		d.mu.Lock()
		left := d.delay - time.Since(began)
		if d.changed == nil {
			d.changed = make(chan struct{})
		}
		changed, errno := d.changed, d.errno
		d.mu.Unlock()
		if left <= 0 {
			return errno
		}
		select {
		case <-time.After(left):
		case <-changed:
		case <-over:
			return 0
		}
	}
}
