package store

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// The test binary runs itself as the process that dies.
const (
	envDieAt = "STORE_TEST_DIE_AT" // "point:n": at the n-th time that it is there
	envPath  = "STORE_TEST_PATH"
	envRun   = "STORE_TEST_RUN"
)

func TestMain(m *testing.M) {
	switch os.Getenv(envRun) {
	case "":
		os.Exit(m.Run())
	case "callers":
		runCallers()
	case "limited":
		runLimited()
	case "local":
		runLocal()
	}
}

const crashCallers = 8

// runCallers makes changes until it is killed, and says which were answered.
// Caller c adds attachments c, c+8, c+16, …, and removes every third one again.
func runCallers() {
	die, nth, _ := strings.Cut(os.Getenv(envDieAt), ":")
	times, _ := strconv.Atoi(nth)
	path := os.Getenv(envPath)
	s, err := Open(path, Options{Witness: WitnessFile(path + ".witness"), Fail: func(point string) {
		if times--; point == die && times <= 0 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	var start uint64
	_ = s.View(func(tx *Tx) error { start = tx.st.counter; return nil })
	var wg sync.WaitGroup
	for c := range crashCallers {
		wg.Go(func() {
			for n := int(start)*crashCallers + c; ; n += crashCallers {
				report(s, "added", n, func(tx *Tx) error {
					tx.Next()
					return tx.PutAttachment(claimed(n))
				})
				if n/crashCallers%3 == 0 {
					report(s, "removed", n, func(tx *Tx) error { return tx.DeleteAttachment(claimed(n).Key) })
				}
			}
		})
	}
	wg.Wait()
}

// report says what it is about to do, does it, and says that it was answered.
// Every line is one write.
func report(s *Store, what string, n int, fn func(*Tx) error) {
	_, _ = fmt.Printf("try %s %d\n", what, n)
	if err := s.Update(context.Background(), fn); err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	_, _ = fmt.Printf("did %s %d\n", what, n)
}

// ledger is what the dying process said of each attachment last.
type ledger struct {
	tried, done map[int]string
	lines       int
}

func (l *ledger) note(t *testing.T, line string) {
	verb, rest, _ := strings.Cut(line, " ")
	what, number, _ := strings.Cut(rest, " ")
	n, err := strconv.Atoi(number)
	if err != nil {
		t.Fatalf("the process says %q", line)
	}
	l.lines++
	if l.tried[n] = what; verb == "did" {
		l.done[n] = what
	}
}

// check compares a store with what was answered: that is there, and what was not
// answered is wholly there or not at all.
func (l *ledger) check(t *testing.T, s *Store) {
	t.Helper()
	got := read(t, s)
	for n, what := range l.tried {
		a, there := got.Attachments[claimed(n).Key.String()]
		if l.done[n] == what && there != (what == "added") {
			t.Errorf("attachment %d: %s was answered; recorded = %v", n, what, there)
		}
		want := claimed(n)
		want.Generation = a.Generation
		if there && diff(want, a) != "" {
			t.Errorf("attachment %d: (-want +got):\n%s", n, diff(want, a))
		}
	}
	for text, a := range got.Attachments {
		n, err := strconv.ParseInt(a.ContainerID, 16, 64)
		if err != nil || l.tried[int(n)] == "" {
			t.Errorf("attachment %s is recorded; nobody asked for it", text)
		}
	}
}

// runUntilKilled starts a process that dies at the point, or, if there is none,
// is killed after so many lines, wherever it is then.
func (l *ledger) runUntilKilled(t *testing.T, path, dieAt string, lines int) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envRun+"=callers", envPath+"="+path, envDieAt+"="+dieAt)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for sc := bufio.NewScanner(out); sc.Scan(); {
		l.note(t, sc.Text())
		if lines--; lines == 0 {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("the process ends with %v; want that it is killed", err)
	}
}

// TestKilled kills a process with eight callers under way, at every named point
// of a commit and at random ones, again and again on the same store, and checks
// each time that everything that it had answered is there.
func TestKilled(t *testing.T) {
	for _, point := range []string{"before-commit", "after-commit", "before-answer", ""} {
		t.Run(cmp.Or(point, "anywhere"), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "store.db")
			l := ledger{tried: map[int]string{}, done: map[int]string{}}
			rng := rand.New(rand.NewPCG(3, 0))
			for round := range 8 {
				dieAt, lines := fmt.Sprintf("%s:%d", point, 1+rng.IntN(60)), 0
				if point == "" {
					dieAt, lines = "", 1+rng.IntN(400)
				}
				l.runUntilKilled(t, path, dieAt, lines)
				s, err := Open(path, Options{Witness: WitnessFile(path + ".witness")})
				if err != nil {
					t.Fatalf("round %d: %v", round, err)
				}
				l.check(t, s)
				if err := errors.Join(s.Check(), s.Close()); err != nil {
					t.Fatalf("round %d: %v", round, err)
				}
			}
			if len(l.done) < 20 {
				t.Errorf("only %d changes were answered: the test proves little", len(l.done))
			}
		})
	}
}

// TestLeftoversOfCreation opens a store beside a draft that a process which
// died while it made one left, of any length: it must not be in the way.
func TestLeftoversOfCreation(t *testing.T) {
	whole := newStore(t, Options{})
	if err := whole.Close(); err != nil {
		t.Fatal(err)
	}
	b := load(t, whole.Path())
	for _, size := range []int{0, 1, 4096, 16384, len(b)} {
		path := filepath.Join(t.TempDir(), "store.db")
		if err := os.WriteFile(path+".new", b[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		s := reopen(t, path, Options{})
		if s.ID() == whole.ID() {
			t.Errorf("a draft of %d bytes was taken for the store", size)
		}
		if _, err := os.Stat(path + ".new"); err == nil {
			t.Errorf("a draft of %d bytes is left", size)
		}
	}
}
