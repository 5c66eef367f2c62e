package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"
)

// What a build costs, measured on a machine of two cores. The first is of one
// core, the others are of elapsed time.
const (
	perPackage     = 400 * time.Millisecond
	perLink        = time.Second
	perLinkOfLarge = 8 * time.Second // a program of Kubernetes
)

// link is what it takes to link p.
func (p program) link() time.Duration {
	if p.module == kubernetes {
		return perLinkOfLarge
	}
	return perLink
}

// compile is what it takes to compile packages.
func compile(packages int) time.Duration {
	return time.Duration(packages) * perPackage / time.Duration(runtime.NumCPU())
}

// ticker prints lines about work that goes on: on a terminal one line that
// changes, else one every ten seconds.
type ticker struct {
	out      io.Writer
	terminal bool
	now      func() time.Time
	last     time.Time // when a passing line was printed
}

func newTicker(out io.Writer) *ticker {
	t := &ticker{out: out, now: time.Now}
	if f, ok := out.(*os.File); ok {
		info, err := f.Stat()
		t.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	t.last = t.now()
	return t
}

// pass prints a line that the next one may replace, or nothing if the last one
// was printed a moment ago.
func (t *ticker) pass(format string, args ...any) {
	every, before, after := 10*time.Second, "", "\n"
	if t.terminal {
		every, before, after = 200*time.Millisecond, "\r", "\033[K"
	}
	if t.now().Sub(t.last) < every {
		return
	}
	t.last = t.now()
	fmt.Fprint(t.out, before+"rig: "+fmt.Sprintf(format, args...)+after)
}

// stay prints a line that stays.
func (t *ticker) stay(format string, args ...any) {
	before, after := "", "\n"
	if t.terminal {
		before, after = "\r", "\033[K\n"
	}
	fmt.Fprint(t.out, before+"rig: "+fmt.Sprintf(format, args...)+after)
}

// meter tells how a build goes on.
type meter struct {
	*ticker
	started            time.Time
	packages, compiled int
	work, done         time.Duration // estimates: of everything, of what is done
}

func newMeter(t *ticker, packages int, programs []program) *meter {
	m := &meter{ticker: t, started: t.now(), packages: packages, work: compile(packages)}
	for _, p := range programs {
		m.work += p.link()
	}
	t.stay("%d packages to compile, %d programs to link: about %v on %d cores; seconds when all is built",
		packages, len(programs), max(m.work, time.Second).Round(time.Second), runtime.NumCPU())
	return m
}

// left corrects the estimate of what remains by how the build went so far.
func (m *meter) left() time.Duration {
	if m.done == 0 {
		return m.work
	}
	return time.Duration(float64(max(0, m.work-m.done)) * float64(m.gone()) / float64(m.done))
}

func (m *meter) gone() time.Duration { return m.now().Sub(m.started) }

// watch returns a writer for what `go build -v` says: a package on a line is
// progress, everything else goes to other.
func (m *meter) watch(p program, other io.Writer) io.Writer {
	return &lines{each: func(line string) {
		if line == "" || strings.ContainsAny(line, " :#") {
			fmt.Fprintln(other, line)
			return
		}
		m.compiled++
		m.done += compile(1)
		m.pass("%s: %d of %d packages compiled, %v gone, about %v left",
			p.name, m.compiled, m.packages, m.gone().Round(time.Second), m.left().Round(10*time.Second))
	}}
}

// built says that p is there.
func (m *meter) built(p program) {
	m.done += p.link()
	m.stay("%s: built, %v gone", p.name, m.gone().Round(time.Second))
}

// lines calls each with every whole line written to it.
type lines struct {
	each func(string)
	part []byte
}

func (l *lines) Write(b []byte) (int, error) {
	l.part = append(l.part, b...)
	for {
		line, rest, ok := bytes.Cut(l.part, []byte("\n"))
		if !ok {
			return len(b), nil
		}
		l.each(string(line))
		l.part = rest
	}
}
