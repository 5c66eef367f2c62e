package main

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// machine is what the figures were measured on, and of what.
type machine struct {
	CPU    string `json:"cpu"`
	CPUs   int    `json:"cpus"`
	Kernel string `json:"kernel"`
	Disk   string `json:"disk"` // kind of the file system
	// SyncMillis is how long an fdatasync of one written page takes there.
	SyncMillis float64 `json:"fdatasyncMillis"`
	// Load is the machine's load average before the first measurement: what
	// else it does.
	Load     string            `json:"load"`
	Go       string            `json:"go"`
	Versions map[string]string `json:"versions"` // of the programs
}

// describe finds out what the report is about.
func (r *report) describe(b *bench) error {
	m := machine{CPU: cpuModel(), CPUs: runtime.NumCPU(), Go: runtime.Version(), Versions: map[string]string{}}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return fmt.Errorf("uname: %w", err)
	}
	m.Kernel = unix.ByteSliceToString(name.Release[:])
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return err
	}
	m.Load = strings.Join(strings.Fields(string(load))[:3], " ")
	if m.Disk, err = fileSystem(b.dir); err != nil {
		return err
	}
	if m.SyncMillis, err = syncTime(filepath.Join(b.dir, "probe")); err != nil {
		return err
	}
	m.Versions["tenure"] = commit(b.root)
	for _, program := range others {
		m.Versions[program] = version(b.program(program))
	}
	r.machine = m
	return nil
}

func (m machine) lines() []string {
	var programs []string
	for _, p := range append([]string{"tenure"}, others...) {
		programs = append(programs, p+" "+m.Versions[p])
	}
	return []string{
		fmt.Sprintf("%d × %s, Linux %s, load average %s when it began", m.CPUs, m.CPU, m.Kernel, m.Load),
		fmt.Sprintf("stores on %s, where an fdatasync takes %.2f ms (median)", m.Disk, m.SyncMillis),
		m.Go + "; " + strings.Join(programs, ", "),
	}
}

func cpuModel() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// fileSystem names the kind of the file system at path.
func fileSystem(path string) (string, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return "", fmt.Errorf("statfs %s: %w", path, err)
	}
	names := map[int64]string{
		unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs",
		unix.TMPFS_MAGIC: "tmpfs", unix.OVERLAYFS_SUPER_MAGIC: "overlayfs",
	}
	if name, ok := names[st.Type]; ok {
		return name, nil
	}
	return fmt.Sprintf("a file system of type %#x", st.Type), nil
}

// syncTime returns the median time of an fdatasync after a page was written, in
// milliseconds.
func syncTime(path string) (float64, error) {
	const pages, times = 64, 200
	f, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.Remove(path) }() // the sandbox's disk goes with all that is on it
	defer f.Close()
	page := bytes.Repeat([]byte{1}, os.Getpagesize())
	for i := range int64(pages) {
		if _, err := f.WriteAt(page, i*int64(len(page))); err != nil {
			return 0, err
		}
	}
	if err := f.Sync(); err != nil {
		return 0, err
	}
	var took []time.Duration
	for i := range int64(times) {
		if _, err := f.WriteAt(page, i%pages*int64(len(page))); err != nil {
			return 0, err
		}
		began := time.Now()
		if err := syscall.Fdatasync(int(f.Fd())); err != nil {
			return 0, fmt.Errorf("fdatasync: %w", err)
		}
		took = append(took, time.Since(began))
	}
	return millis(percentile(took, 50)), nil
}

// others are the programs of others that are measured, or needed for it.
var others = []string{"static", "host-local", "etcd", "kube-apiserver"}

const unknown = "of unknown version"

// commit returns what git calls the tree at root.
func commit(root string) string {
	out, err := exec.Command("git", "-C", root, "describe", "--always", "--dirty").Output()
	if err != nil {
		return unknown // no git, or not a clone
	}
	return strings.TrimSpace(string(out))
}

// version returns the version of the module that a program was built from.
func version(path string) string {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return unknown
	}
	for _, m := range append(info.Deps, &info.Main) {
		if (info.Path == m.Path || strings.HasPrefix(info.Path, m.Path+"/")) && m.Version != "" {
			return m.Version
		}
	}
	return unknown
}
