package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tenure-ipam/tenure/test/cninet"
	"github.com/tenure-ipam/tenure/test/process"
)

func (l *local) playTwo(ctx context.Context) {
	l.Does("/etc/cni/net.d/lab.conflist", "the network")
	l.Block(localConfig)
	for _, name := range []string{"web", "db"} {
		c := l.make(name)
		l.Command("cnitool add lab /run/netns/%s", name)
		l.During("ADD of "+name, func() error { return l.add(ctx, c) })
		l.running = append(l.running, c)
	}
	l.showContainers(l.running...)
	l.distinct(ctx)
	l.OK("Each has what ADD answered, and the network's file says so.")
	web, db := l.running[0], l.running[1]
	l.pingFrom(ctx, web, db)
	l.pingFrom(ctx, db, web)
	l.OK("They reach each other, by IPv4 and by IPv6.")
	if pids := plugins(); len(pids) > 0 {
		l.Fail("processes of the plugin are left: %v", pids)
	}
	l.OK("No process of Tenure runs any more: between two calls there is only the file.")
}

// pingFrom pings every address of to.
func (l *local) pingFrom(ctx context.Context, from, to *container) {
	l.During("pings", func() error {
		for _, a := range to.addrs {
			if err := ping(ctx, from.ns, a.Addr()); err != nil {
				return err
			}
		}
		return nil
	})
}

func ping(ctx context.Context, from cninet.NS, to netip.Addr) error {
	ctx, cancel := context.WithTimeoutCause(ctx, process.Patience, fmt.Errorf("no answer for %v", process.Patience))
	defer cancel()
	return from.Ping(ctx, to)
}

func (l *local) playSixteen(ctx context.Context) {
	var all []*container
	for i := range 16 {
		all = append(all, l.make(fmt.Sprintf("job-%d", i+1)))
	}
	took := l.During("16 ADDs", func() error {
		var g errgroup.Group
		for _, c := range all {
			g.Go(func() error { return l.add(ctx, c) })
		}
		return g.Wait()
	})
	l.running = append(l.running, all...)
	l.showContainers(all...)
	l.distinct(ctx)
	l.OK("Sixteen containers have addresses %s: none twice, each as the file has it.", l.Took(took))
	for _, c := range all {
		l.pingFrom(ctx, l.running[0], c)
	}
	l.OK("%s reaches all of them.", l.running[0].name)
}

// kills is how many processes of the plugin are killed.
const kills = 12

func (l *local) playKill(ctx context.Context) {
	l.Command("pkill -KILL -x tenure      # at a random moment of an ADD, %d times", kills)
	had, killed := 0, 0
	l.During("ADDs that are killed", func() error {
		for i := 0; killed < kills; i++ {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			c := l.make(fmt.Sprintf("victim-%d", i+1))
			hit := l.addAndKill(ctx, c)
			switch got := l.records(ctx)[c.name]; {
			case len(got) == 1:
				l.Fail("%s has %v: half of what it should have, or nothing", c.name, got)
			case hit && len(got) > 0:
				had++
			}
			if hit {
				killed++
			}
			if err := l.runtime.Del(ctx, localConfig, c.attachment()); err != nil {
				return fmt.Errorf("DEL of %s: %w", c.name, err)
			}
			if err := c.ns.Delete(); err != nil {
				return err
			}
		}
		return nil
	})
	l.OK("%d killed: %d had both addresses in the file already, %d nothing, and none had half.", killed, had, killed-had)
	l.distinct(ctx)
	l.OK("The DEL of each has freed what it had. The file is sound, and the others have what they had.")
}

// addAndKill kills the plugin during an ADD of c. It returns false if the plugin ended first.
func (l *local) addAndKill(ctx context.Context, c *container) (killed bool) {
	done := make(chan error, 1)
	go func() { done <- l.add(ctx, c) }()
	for {
		select {
		case err := <-done:
			return err != nil
		default:
		}
		pids := plugins()
		if len(pids) == 0 {
			continue
		}
		time.Sleep(rand.N(4 * time.Millisecond))
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended meanwhile
		}
		return <-done != nil
	}
}

// plugins returns the processes of the plugin. The sandbox has no others than the demo's.
func plugins() (pids []int) {
	paths, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, path := range paths {
		name, err := os.ReadFile(path)
		if err != nil || strings.TrimSpace(string(name)) != "tenure" {
			continue // it has ended meanwhile, or is another
		}
		if pid, err := strconv.Atoi(strings.Split(path, "/")[2]); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

func (l *local) playWho(ctx context.Context) {
	db := l.running[1]
	wanted := db.addrs[0]
	l.Command("CAP_ARGS='{\"ips\": [%q]}' cnitool add lab /run/netns/squatter", wanted.Addr())
	l.refuse(ctx, l.make("squatter"), wanted.String(), wanted.Addr().String(), db.name)
	l.OK("%v is %s's, and stays so.", wanted.Addr(), db.name)
	gone := l.running[2:10]
	for _, c := range gone {
		l.Must(c.ns.Delete())
	}
	l.Command("ip netns del %s …          # %d containers vanish without a DEL", gone[0].name, len(gone))
	l.running = append(l.running[:2:2], l.running[10:]...)
	var valid []cninet.Attachment
	for _, c := range l.running {
		valid = append(valid, c.attachment())
	}
	l.Command("cnitool gc lab")
	l.During("GC", func() error { return l.runtime.GC(ctx, localConfig, valid...) })
	l.distinct(ctx)
	rows := [][]string{{"CONTAINER", "ADDRESSES, AS THE FILE HAS THEM"}}
	for _, c := range l.running {
		rows = append(rows, []string{c.name, c.texts()})
	}
	l.Table(rows...)
	l.OK("What the %d had is free again; the %d that run have what they had.", len(gone), len(l.running))
	l.During("CHECK", func() error {
		for _, c := range l.running {
			if err := l.runtime.Check(ctx, localConfig, c.attachment()); err != nil {
				return fmt.Errorf("CHECK of %s: %w", c.name, err)
			}
		}
		return nil
	})
	l.OK("CNI CHECK: each of them has in the kernel what its ADD answered.")
}
