package plugin_test

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"sync"
	"testing"
	"time"
)

// together runs do for each container, all at once.
func together(containers []string, do func(container string)) {
	var wg sync.WaitGroup
	for _, c := range containers {
		wg.Go(func() { do(c) })
	}
	wg.Wait()
}

func containers(prefix string, count int) []string {
	var names []string
	for i := range count {
		names = append(names, fmt.Sprintf("%s%d", prefix, i))
	}
	return names
}

// TestManyProcesses (C15): fifty at once, then half of them leave while as many
// others come.
func TestManyProcesses(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		n := b.network(t, "10.0.0.0/24", "fd00::/64")
		l := newLedger(t)
		add := func(c string) {
			got, err := n.insist(t, c)
			if err != nil {
				t.Errorf("ADD of %s: %v", c, err)
			}
			l.added(got, c)
		}
		first := containers("a", 50)
		together(first, add)
		var wg sync.WaitGroup
		wg.Go(func() { together(containers("b", 25), add) })
		wg.Go(func() {
			together(first[:25], func(c string) {
				l.deleting(c)
				n.call("DEL", c).run(t).wantQuiet(t)
			})
		})
		wg.Wait()
		if got := len(l.holder); got != 100 {
			t.Errorf("%d addresses are held; want two for each of 50 containers", got)
		}
	})
}

// TestTheSameADDTwiceAtOnce (C15): a runtime that gave up on a call may make it
// again while the first one still runs.
func TestTheSameADDTwiceAtOnce(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		n := b.network(t, "10.0.0.0/24")
		answers := make([]string, 8)
		var wg sync.WaitGroup
		for i := range answers {
			wg.Go(func() {
				got, err := n.insist(t, "c1")
				if err != nil {
					t.Error(err)
				}
				answers[i] = got
			})
		}
		wg.Wait()
		for _, got := range answers {
			if got != answers[0] {
				t.Errorf("answers %q; want one address", answers)
				break
			}
		}
	})
}

// TestExactlyFull: as many processes at once as there are addresses.
func TestExactlyFull(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		n := b.network(t, "10.0.0.0/27") // 29 addresses
		l := newLedger(t)
		together(containers("c", 29), func(c string) {
			got, err := n.insist(t, c)
			if err != nil {
				t.Errorf("ADD of %s: %v", c, err)
			}
			l.added(got, c)
		})
		if got := len(l.holder); got != 29 {
			t.Errorf("%d addresses are held; want 29", got)
		}
		n.call("ADD", "more").run(t).wantError(t, 11, "IPv4")
	})
}

// TestKilledProcesses kills ADDs and DELs at any point. Whatever was answered
// stays unique; after the runtime's DELs, nothing has leaked.
func TestKilledProcesses(t *testing.T) {
	const rounds, at = 12, 8
	eachBackend(t, func(t *testing.T, b backend) {
		n := b.network(t, "10.0.0.0/25") // 125 addresses
		l := newLedger(t)
		rng := rand.New(rand.NewPCG(1, uint64(len(b.name))))
		for round := range rounds {
			names := containers(fmt.Sprintf("r%d-", round), at)
			patience := make(map[string]time.Duration)
			for _, c := range names {
				patience[c] = time.Duration(rng.IntN(12000)) * time.Microsecond
			}
			together(names, func(c string) {
				if got, ok := runKilled(t, n.call("ADD", c), patience[c]); ok {
					l.added(got, c)
				}
			})
			together(names[:at/2], func(c string) {
				l.deleting(c)
				runKilled(t, n.call("DEL", c), patience[c]/2)
			})
		}
		// The runtime repeats every DEL whose end it has not seen.
		for round := range rounds {
			together(containers(fmt.Sprintf("r%d-", round), at), func(c string) {
				l.deleting(c)
				n.call("DEL", c).run(t).wantQuiet(t)
			})
		}
		var wg sync.WaitGroup
		all := containers("c", 125)
		for i := range 5 {
			wg.Go(func() {
				for _, c := range all[i*25 : (i+1)*25] {
					got, err := n.insist(t, c)
					if err != nil {
						t.Errorf("ADD of %s: %v", c, err)
						return
					}
					l.added(got, c)
				}
			})
		}
		wg.Wait()
		if got := len(l.holder); got != len(all) {
			t.Errorf("%d addresses are held; want all %d", got, len(all))
		}
	})
}

// runKilled runs c and kills it after patience. It returns the addresses if it
// was answered.
func runKilled(t *testing.T, c call, patience time.Duration) (addresses string, answered bool) {
	cmd, stdout, stderr := c.command()
	if err := cmd.Start(); err != nil {
		t.Error(err)
		return "", false
	}
	timer := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	err := cmd.Wait()
	o := outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
	if _, killed := err.(*exec.ExitError); killed && o.exit > 0 {
		t.Errorf("%s of %s: exit %d: %s %s", c.env["CNI_COMMAND"], c.env["CNI_CONTAINERID"], o.exit, o.stdout, o.stderr)
	}
	if o.exit != 0 || o.stdout == "" {
		return "", false
	}
	addresses, err = o.addresses()
	if err != nil {
		t.Error(err)
	}
	return addresses, err == nil
}
