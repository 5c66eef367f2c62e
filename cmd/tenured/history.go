package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tenure-ipam/tenure/ipam/history"
)

const historyUsage = `tenured history ADDRESS prints who of this node had an address, from when to when, as
the agent has written it down: a line of JSON for each time that a pod had it, and a
last one that says how far back the files go. "kubectl tenure who ADDRESS --at TIME"
runs it on every node.

A TIME is one such as 2026-11-17T14:00:00Z, without seconds or zone (then it is UTC) if
you like, a date, or 7d or 36h, which is so long ago.

Flags, beside those of the agent, which say where its files are:
`

// showHistory reads the flags and prints what the node's files say of an address.
func showHistory(_ context.Context, args []string, out, stderr io.Writer) error {
	var opts options
	flags := newFlags("tenured history", historyUsage, stderr)
	opts.flags(flags, func(string) string { return "" })
	at := flags.String("at", "", "who had it at this time")
	since := flags.String("since", "", "who has had it since then")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("%w: see tenured history --help", err)
	}
	if flags.NArg() != 1 {
		return errors.New("give one address: see tenured history --help")
	}
	addr, err := netip.ParseAddr(flags.Arg(0))
	if err != nil || addr.Zone() != "" {
		return fmt.Errorf("%q is no IP address: write one such as 10.0.0.5 or fd00::5", flags.Arg(0))
	}
	from, to, err := history.ParsePeriod(*at, *since, time.Now().UTC())
	if err != nil {
		return err
	}
	opts.daemon.PlaceBesideStore()
	answer, err := history.Read(opts.daemon.History, addr.Unmap(), from, to)
	if errors.Is(err, history.ErrNone) && opts.daemon.HistoryBounds.Off() {
		return fmt.Errorf("%w: it is off, by --history-size or --history-age", err)
	}
	if err != nil {
		return err
	}
	return answer.Write(out)
}

// historyFlags adds the flags of how much is kept of who had which address.
func historyFlags(flags *pflag.FlagSet, b *history.Bounds) {
	*b = history.DefaultBounds
	flags.Var((*size)(&b.Size), "history-size", "how much is kept of who had which address, in the directory history beside the store; 0: nothing")
	flags.Var((*age)(&b.Age), "history-age", "how long it is kept; 0: nothing is")
}

// A size is a flag for so many bytes: 64Mi.
type size int64

// String implements [pflag.Value].
func (s *size) String() string {
	if *s == 0 {
		return "0"
	}
	return resource.NewQuantity(int64(*s), resource.BinarySI).String()
}

// Set implements [pflag.Value].
func (s *size) Set(text string) error {
	q, err := resource.ParseQuantity(text)
	if n, ok := q.AsInt64(); err == nil && ok && n >= 0 {
		*s = size(n)
		return nil
	}
	return errors.New("write a number of bytes such as 64Mi, or 0")
}

// Type implements [pflag.Value].
func (*size) Type() string { return "size" }

// An age is a flag for a duration in days or less: 90d.
type age time.Duration

// String implements [pflag.Value].
func (a *age) String() string {
	const day = age(24 * time.Hour)
	if *a%day == 0 && *a != 0 {
		return strconv.FormatInt(int64(*a/day), 10) + "d"
	}
	return time.Duration(*a).String()
}

// Set implements [pflag.Value].
func (a *age) Set(text string) error {
	d, err := history.ParseDuration(text)
	if err == nil {
		*a = age(d)
	}
	return err
}

// Type implements [pflag.Value].
func (*age) Type() string { return "age" }
