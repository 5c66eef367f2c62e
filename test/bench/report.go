package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
)

// report is what was measured, as it is shown: the figures that have an aim first,
// then tables of what they come from.
type report struct {
	machine machine
	figures []figure // all, in the order of measuring
	tables  []table
	how     []string
	// order is how the candidates stand in tables.
	order []name
}

// A table has a heading, the names of its columns, and rows.
type table struct {
	title   string
	columns []string
	rows    [][]string
}

// note keeps f, and returns its value as tables have it.
func (r *report) note(f figure) string {
	r.figures = append(r.figures, f)
	return number(f.Value)
}

// explain adds how something was measured: a line of its own.
func (r *report) explain(what, how string) { r.how = append(r.how, what+": "+how) }

// one reports calls that were made one at a time.
func (r *report) one(m measured) {
	t := table{title: "one at a time, milliseconds", columns: []string{"", "ADD p50", "ADD p99", "ADD cpu", "DEL p50", "DEL p99", "DEL cpu"}}
	for _, n := range r.order {
		row := []string{n.String()}
		for _, verb := range verbs {
			x, base := m[n][verb], fmt.Sprintf("one/%s/%s", verb, string(n))
			row = append(row,
				r.note(newFigure(base+"/p50", "ms", x.wall(50))),
				r.note(newFigure(base+"/p99", "ms", x.pooled(99))),
				r.note(newFigure(base+"/cpu", "ms", x.cpu())))
		}
		t.rows = append(t.rows, row)
	}
	r.tables = append(r.tables, t)
	agent, ref, local, host := m[viaAgent]["ADD"], m[static]["ADD"], m[inLocal]["ADD"], m[hostLocal]["ADD"]
	r.note(newFigure("one/ADD/agent/p50/static", "×", ratios(agent.wall(50), ref.wall(50))).
		aimed("one ADD through the agent: p50, to static's", atMost(1.3)))
	r.note(newFigure("one/ADD/local/p50/host-local", "×", ratios(local.wall(50), host.wall(50))).
		aimed("one ADD in local mode: p50, to host-local's", atMost(1)))
	r.explain("one at a time", "whole processes, from before the fork to after the wait, with environment and stdin as from a main plugin; the four take turns at "+
		"every call; p50 is the median of the rounds' medians. Tenure's are on disk when they return (fdatasync), host-local's are not, and static stores nothing")
	r.explain("cpu", "user and system time of the plugin's process, median; what the agent needs is with the socket")
}

// sixteen reports bursts.
func (r *report) sixteen(m measured) {
	t := table{title: fmt.Sprintf("%d at once", burstWorkers), columns: []string{"", "ADD/s", "p50 ms", "p99 ms", "cpu ms", "DEL/s", "p50 ms", "p99 ms", "cpu ms"}}
	for _, n := range r.order {
		row := []string{n.String()}
		for _, verb := range verbs {
			x, base := m[n][verb], fmt.Sprintf("%d/%s/%s", burstWorkers, verb, string(n))
			row = append(row,
				r.note(newFigure(base+"/rate", "/s", x.rate())),
				r.note(newFigure(base+"/p50", "ms", x.wall(50))),
				r.note(newFigure(base+"/p99", "ms", x.wall(99))),
				r.note(newFigure(base+"/cpu", "ms", x.cpu())))
		}
		t.rows = append(t.rows, row)
	}
	r.tables = append(r.tables, t)
	agent, ref, local, host := m[viaAgent]["ADD"], m[static]["ADD"], m[inLocal]["ADD"], m[hostLocal]["ADD"]
	r.note(newFigure("16/ADD/agent/rate/static", "×", ratios(agent.rate(), ref.rate())).
		aimed("16 ADDs at once through the agent: rate, to static's", atLeast(0.8)))
	r.note(newFigure("16/ADD/agent/p99/static", "×", ratios(agent.wall(99), ref.wall(99))).
		aimed("16 ADDs at once through the agent: p99, to static's", atMost(2)))
	r.note(newFigure("16/ADD/local/rate/host-local", "×", ratios(local.rate(), host.rate())).
		aimed("16 ADDs at once in local mode: rate, to host-local's", atLeast(2)))
	r.explain(fmt.Sprintf("%d at once", burstWorkers), fmt.Sprintf("%d workers make %d ADDs of as many pods, then their DELs; one candidate after the other in "+
		"every round, each time another one first; ratios are taken within a round", burstWorkers, len(agent.rounds[0])))
}

// socket reports addresses a second, the agent's processor time for each, and how
// long one ADD takes by itself.
func (r *report) socket(adds, dels, cpu, single []float64) {
	added := newFigure("socket/ADD/rate", "/s", adds).aimed("one node, 64 callers on the socket: addresses a second", atLeast(20000))
	r.tables = append(r.tables, table{
		title: "64 callers on the node socket", columns: []string{"ADD/s", "DEL/s", "agent's cpu for one ADD, µs", "a single caller's ADD, ms"},
		rows: [][]string{{
			r.note(added), r.note(newFigure("socket/DEL/rate", "/s", dels)), r.note(newFigure("socket/ADD/cpu", "µs", cpu)),
			r.note(newFigure("socket/ADD/single/p50", "ms", single)),
		}},
	})
	r.explain("64 callers", fmt.Sprintf("64 connections with one request each under way: ADDs of %d pods with %d interfaces, then their DELs, out of blocks that the node "+
		"holds; the agent is the shipped program; requests are encoded beforehand, answers checked afterwards; callers and agent share the processors", socketPods, interfacesPerPod))
}

// allocator reports the allocator's benchmark.
func (r *report) allocator(takes []take) {
	t := table{title: "allocator: free, find and take one address", columns: []string{"pool", "full", "ns", "bytes allocated", "bytes of state per address"}}
	first := map[string]take{}
	for _, x := range takes {
		base := "allocator/" + x.pool + "/" + x.fill
		t.rows = append(t.rows, []string{
			poolTitle(x.pool), x.fill, r.note(newFigure(base+"/time", "ns", x.ns)),
			r.note(newFigure(base+"/allocated", "B", []float64{x.bytes})), r.note(newFigure(base+"/state", "B", []float64{x.held})),
		})
		if _, ok := first[x.pool]; !ok {
			first[x.pool] = x
		}
		if x.fill == "99.9%" {
			r.note(newFigure("allocator/"+x.pool+"/time/full", "×", ratios(x.ns, first[x.pool].ns)).
				aimed("allocation in "+poolTitle(x.pool)+", 99.9 % full: time, to that at 1 %", atMost(2)))
		}
	}
	r.tables = append(r.tables, t)
	r.explain("allocator", "go test -bench=BenchmarkTake ./allocator: the steady state of one holder of a whole pool, over a table in memory")
}

// poolTitle is how people call a pool of the allocator's benchmark.
func poolTitle(pool string) string {
	bits, fragmented, ok := strings.Cut(pool, "-")
	if !ok {
		return "a /" + bits
	}
	return "a /" + bits + " of " + strings.ReplaceAll(fragmented, "-", " ")
}

// size reports the programs' sizes, in megabytes of 10^6 bytes.
func (r *report) size(programs []string, sizes []int64) {
	row := make([]string, len(programs))
	for i, program := range programs {
		f := newFigure("size/"+program, "MB", []float64{float64(sizes[i]) / 1e6})
		switch program {
		case "tenure":
			f = f.aimed("size of the IPAM plugin", atMost(5))
		case "tenure-attach":
			f = f.aimed("size of the meta-plugin", atMost(10))
		}
		row[i] = r.note(f)
	}
	r.tables = append(r.tables, table{title: "programs, MB", columns: programs, rows: [][]string{row}})
	r.explain("programs", "as they ship: static and stripped")
}

// rss reports an idle agent's memory.
func (r *report) rss(whole, own int64) {
	r.note(newFigure("rss/agent", "MB", []float64{float64(whole) / 1e6}).aimed("memory of an idle agent", atMost(40)))
	anon := r.note(newFigure("rss/agent/own", "MB", []float64{float64(own) / 1e6}))
	r.explain("memory", fmt.Sprintf("VmRSS, %v after the agent is ready, with one pool; %s MB are its own (RssAnon), the rest is the program's text", settle, anon))
}

// print writes everything for people.
func (r *report) print(w io.Writer) {
	aims := table{title: "aims", columns: []string{"", "measured", "rounds", "aim", "met"}}
	for _, f := range r.figures {
		if f.Aim == nil {
			continue
		}
		met := "yes"
		if !*f.Met {
			met = "NO"
		}
		spread := ""
		if f.Low != f.High {
			spread = number(f.Low) + " – " + number(f.High)
		}
		aims.rows = append(aims.rows, []string{f.Title, number(f.Value) + " " + f.Unit, spread, f.Aim.String(), met})
	}
	for _, t := range append([]table{aims}, r.tables...) {
		if len(t.rows) > 0 {
			t.print(w)
		}
	}
	fmt.Fprintln(w, "How:")
	for _, line := range r.how {
		fmt.Fprintln(w, wrap("  "+line, "    ", 110))
	}
	fmt.Fprintln(w, "On:")
	for _, line := range r.machine.lines() {
		fmt.Fprintln(w, wrap("  "+line, "    ", 110))
	}
}

func (t table) print(w io.Writer) {
	fmt.Fprintf(w, "%s\n\n", strings.ToUpper(t.title[:1])+t.title[1:])
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(tw, "  "+strings.Join(t.columns, "\t"))
	for _, row := range t.rows {
		fmt.Fprintln(tw, "  "+strings.Join(row, "\t"))
	}
	_ = tw.Flush() // its writer is a buffer
	fmt.Fprintln(w)
}

// wrap breaks text at spaces so that no line is longer than width; further lines
// begin with indent.
func wrap(text, indent string, width int) string {
	var b strings.Builder
	line := ""
	for word := range strings.SplitSeq(text, " ") {
		if len(line)+1+len(word) > width && strings.TrimSpace(line) != "" {
			b.WriteString(line + "\n")
			line = indent + word
			continue
		}
		if line != "" || word == "" {
			line += " "
		}
		line += word
	}
	return b.String() + line
}

// writeJSON writes the machine, then every figure, a line each.
func (r *report) writeJSON(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	enc := json.NewEncoder(f)
	enc.SetEscapeHTML(false)
	err = enc.Encode(r.machine)
	for _, x := range r.figures {
		if err == nil {
			err = enc.Encode(x)
		}
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}
