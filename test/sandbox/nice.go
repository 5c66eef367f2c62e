package sandbox

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// autogroup is where the kernel is told how nice a session is, if it groups processes by
// session: then a process's own niceness counts only within its session, which the
// sandbox has begun anew, and "nice" before a command would say nothing. See sched(7).
const autogroup = "/proc/self/autogroup"

// followNice gives this session the niceness that this process was started with, where
// the kernel has that, and lets it.
func followNice() error {
	// The system call returns 20 less the niceness: its results are not negative.
	got, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0)
	if err != nil {
		return fmt.Errorf("read the niceness: %w", err)
	}
	nice := 20 - got
	if nice == 0 {
		return nil
	}
	err = os.WriteFile(autogroup, []byte(strconv.Itoa(nice)), 0)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, os.ErrPermission), errors.Is(err, syscall.EROFS):
		return nil
	case errors.Is(err, syscall.EAGAIN): // who may not lower a niceness may set one ten times a second
		return nil
	}
	return err
}
