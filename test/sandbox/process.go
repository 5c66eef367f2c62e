package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// forwarded are the signals that a user, a terminal, make or the go command
// send to end or to question a program.
var forwarded = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2,
}

// lifelineFD is where init finds the reading end of a pipe whose writing end
// the process outside holds and never writes to.
const lifelineFD = 3

// followLifeline has init end when the process outside has ended. The kernel does
// so as well, but not where outside was killed between the clone and the moment
// at which init asked for that signal.
func followLifeline() {
	syscall.CloseOnExec(lifelineFD)
	go func() {
		_, _ = os.NewFile(lifelineFD, "lifeline").Read(make([]byte, 1))
		os.Exit(exitBroken) //nolint:forbidigo // there is nobody left to return an error to
	}()
}

// supervise starts this program with env and attr, and lifeline if not nil,
// forwards signals to it, and returns its exit code once wait has seen it end.
func supervise(env []string, lifeline *os.File, attr *syscall.SysProcAttr, wait func(pid int) (syscall.WaitStatus, error)) (int, error) {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, forwarded...)
	defer signal.Stop(signals)

	files := []*os.File{os.Stdin, os.Stdout, os.Stderr}
	if lifeline != nil {
		defer lifeline.Close()
		files = append(files, lifeline)
	}
	p, err := os.StartProcess("/proc/self/exe", os.Args, &os.ProcAttr{Env: env, Files: files, Sys: attr})
	if err != nil {
		return 0, fmt.Errorf("start the program again: %w", err)
	}
	ended := make(chan struct{})
	forwarding := make(chan struct{})
	go func() {
		defer close(forwarding)
		for {
			select {
			case s := <-signals:
				// The process may just have ended: then nobody needs the signal.
				_ = p.Signal(s)
			case <-ended:
				return
			}
		}
	}()
	status, err := wait(p.Pid)
	close(ended)
	<-forwarding
	if err != nil {
		return 0, fmt.Errorf("wait for pid %d: %w", p.Pid, err)
	}
	if status.Signaled() {
		return signalBase + int(status.Signal()), nil
	}
	return status.ExitStatus(), nil
}

// waitFor waits for the one process pid.
func waitFor(pid int) (syscall.WaitStatus, error) {
	return wait(func(s *syscall.WaitStatus) (bool, error) {
		_, err := syscall.Wait4(pid, s, 0, nil)
		return true, err
	})
}

// reapUntil collects every child that ends, as pid 1 has to, until pid does.
func reapUntil(pid int) (syscall.WaitStatus, error) {
	return wait(func(s *syscall.WaitStatus) (bool, error) {
		got, err := syscall.Wait4(-1, s, 0, nil)
		return got == pid, err
	})
}

// wait calls one until it reports that it is done, over interruptions.
func wait(one func(*syscall.WaitStatus) (done bool, err error)) (syscall.WaitStatus, error) {
	for {
		var s syscall.WaitStatus
		done, err := one(&s)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return 0, err
		case done:
			return s, nil
		}
	}
}
