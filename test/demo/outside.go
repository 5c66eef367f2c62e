package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/tenure-ipam/tenure/test/demo/show"
)

// envMark marks every process of a demo. Its value is the PID of the process
// outside the sandbox.
const envMark = "TENURE_DEMO"

// farewell says, outside, that nothing of the demo is left, and returns the exit
// code. What a process made, memory, interfaces, mounts and files on the
// sandbox's tmpfs, cannot outlive the namespaces, and these not the processes.
func farewell(s *show.Screen) int {
	left, err := marked(strconv.Itoa(os.Getpid()))
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("processes are left: %v", left)
	}
	if err == nil {
		err = mountsLeft()
	}
	if err != nil {
		s.Wrong(err)
		return 1
	}
	s.OK("Nothing is left on this machine: no process, network namespace, mount or file.")
	return 0
}

// marked returns the PIDs of a demo's processes, other than this one. An empty
// mark stands for any demo.
func marked(mark string) ([]int, error) {
	paths, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, path := range paths {
		env, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) || errors.Is(err, os.ErrPermission) {
			continue // has ended meanwhile, or is nothing that root here could have started
		}
		if err != nil {
			return nil, err
		}
		pid, err := strconv.Atoi(strings.Split(path, "/")[2])
		if err != nil || pid == os.Getpid() {
			continue
		}
		for v := range bytes.SplitSeq(env, []byte{0}) {
			name, value, _ := strings.Cut(string(v), "=")
			if name == envMark && (mark == "" || value == mark) {
				pids = append(pids, pid)
			}
		}
	}
	return pids, nil
}

// mountsLeft reports mounts below the directories where the sandbox has its own.
func mountsLeft() error {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for l := range strings.Lines(string(text)) {
		if f := strings.Fields(l); len(f) > 4 && strings.HasPrefix(f[4], show.Dir) {
			return fmt.Errorf("a mount is left: %s", f[4])
		}
	}
	if _, err := os.Stat(show.Dir); err == nil {
		return fmt.Errorf("a directory is left: %s", show.Dir)
	}
	return nil
}

// enter replaces this process by a shell in the sandbox of the demo that runs,
// with its kubectl and kubeconfig.
func enter() error {
	pids, err := marked("")
	if err != nil {
		return err
	}
	for _, pid := range pids {
		isInit, err := initOfSandbox(pid)
		if err != nil {
			return err
		}
		if !isInit {
			continue
		}
		bin, err := binDir()
		if err != nil {
			return err
		}
		env := append(os.Environ(),
			"KUBECONFIG="+show.Kubeconfig, "HOME="+show.Dir, "PATH="+bin+":"+filepath.Join(bin, "rig")+":"+os.Getenv("PATH"),
			`PS1=demo \w # `)
		err = syscall.Exec("/usr/bin/nsenter", []string{
			"nsenter", "--all", "--target", strconv.Itoa(pid), "sh", "-c", "cd " + show.Dir + " && exec sh",
		}, env)
		return fmt.Errorf("run nsenter: %w", err)
	}
	return errors.New("no demo runs: start one with --keep")
}

// initOfSandbox reports whether the process pid is the first of its PID
// namespace.
func initOfSandbox(pid int) (bool, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for l := range strings.Lines(string(status)) {
		if f := strings.Fields(l); len(f) > 2 && f[0] == "NSpid:" {
			return f[len(f)-1] == "1", nil
		}
	}
	return false, nil
}
