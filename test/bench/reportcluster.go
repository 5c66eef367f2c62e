package main

import (
	"fmt"
	"strconv"
	"time"
)

// kinds reports one ADD of each kind at a time, in milliseconds.
func (r *report) kinds(took map[kind][]float64) {
	t := table{title: "kinds of ADDs by a single caller on the node socket, milliseconds", columns: []string{"", "p50", "p90", "most", "ADDs"}}
	for _, k := range kinds {
		v := took[k]
		base := "kind/" + k.key
		t.rows = append(t.rows, []string{
			k.title, r.note(newFigure(base+"/p50", "ms", []float64{percentile(v, 50)})), r.note(newFigure(base+"/p90", "ms", []float64{percentile(v, 90)})),
			r.note(newFigure(base+"/most", "ms", []float64{percentile(v, 100)})), strconv.Itoa(len(v)),
		})
	}
	r.tables = append(r.tables, t)
	r.explain("kinds of ADDs", fmt.Sprintf("from the frame to the answer, without the plugin's process; two agents on this machine; a hand-over counts from the answer of a DEL on one "+
		"node to that of the ADD on the other, which has waited for %v, in a pool of %d addresses that is full", lead, smallSize))
}

// writes reports API writes for each ADD.
func (r *report) writes(got []perAdd) {
	t := table{title: "API writes for each ADD", columns: []string{"pool", "burst, no lease held", "burst, leases held", "one a second"}}
	for i, p := range writePools {
		base := "writes/" + p.name
		cold := newFigure(base+"/cold", "", []float64{got[i].cold})
		if i == len(writePools)-1 {
			cold = cold.aimed("API writes for each ADD of a burst in "+p.title, atMost(0.05))
		}
		t.rows = append(t.rows, []string{
			p.title, r.note(cold), r.note(newFigure(base+"/warm", "", []float64{got[i].warm})), r.note(newFigure(base+"/slow", "", []float64{got[i].slow})),
		})
	}
	r.tables = append(r.tables, t)
	r.explain("API writes", fmt.Sprintf("events of a watch of the leases, from the first ADD until %v after the last, so that statuses that are written later count; a burst is of %d ADDs, in the "+
		"/24 of %d; a node's heartbeat, one write in minutes, is not counted", writesSettle, writesBurst*interfacesPerPod, writesInA24))
}

// claims reports claims and plain status updates a second.
func (r *report) claims(count int, served, raw []float64) {
	r.tables = append(r.tables, table{
		title: fmt.Sprintf("%d claims at once", count), columns: []string{"claims/s", "status updates/s without the controller"},
		rows: [][]string{{r.note(newFigure("claims/rate", "/s", served)), r.note(newFigure("claims/raw", "/s", raw))}},
	})
	r.note(newFigure("claims/rate/raw", "×", ratios(served, raw)).aimed("claims: from creation to status, to the API server's status updates", atLeast(0.7)))
	r.explain("claims", fmt.Sprintf("the controller is paused while the claims are made, then they have to get their addresses; the status updates are merge patches of the same claims, to a status "+
		"of the same size, by %d writers, while no controller runs", writers))
}

// reboot reports a thousand attachments at once.
func (r *report) reboot(m measured) {
	count := len(m[viaAgent]["ADD"].rounds[0])
	t := table{title: fmt.Sprintf("%d ADDs at once, as after a reboot", count), columns: []string{"", "all, s", "p50 ms", "p99 ms"}}
	for _, n := range []name{viaAgent, static} {
		x, base := m[n]["ADD"], "reboot/"+string(n)
		t.rows = append(t.rows, []string{
			n.String(), r.note(newFigure(base+"/all", "s", x.seconds())), r.note(newFigure(base+"/p50", "ms", x.wall(50))), r.note(newFigure(base+"/p99", "ms", x.wall(99))),
		})
	}
	r.tables = append(r.tables, t)
	r.note(newFigure("reboot/agent/all/static", "×", ratios(m[viaAgent]["ADD"].seconds(), m[static]["ADD"].seconds())).
		aimed(fmt.Sprintf("%d ADDs at once: time until all are answered, to static's", count), atMost(3)))
	r.explain("at once", "whole processes, all started together; none may fail")
}

// seconds returns for each round how long it took.
func (x *series) seconds() []float64 {
	out := make([]float64, len(x.took))
	for i, d := range x.took {
		out[i] = d.Seconds()
	}
	return out
}

// restarted reports an agent with attachments.
func (r *report) restarted(attachments int, rss int64, with, without time.Duration) {
	of := fmt.Sprintf("agent with %d attachments", attachments)
	r.tables = append(r.tables, table{
		title: of, columns: []string{"memory, MB", "ready after a restart, s", "the same without an API server, s"},
		rows: [][]string{{
			r.note(newFigure("attachments/rss", "MB", []float64{float64(rss) / 1e6})),
			r.note(newFigure("attachments/start", "s", []float64{with.Seconds()}).aimed(of+": seconds until it is ready", atMost(1))),
			r.note(newFigure("attachments/start/alone", "s", []float64{without.Seconds()}).aimed(of+": the same while the API server is paused", atMost(1))),
		}},
	})
}

// controller reports a controller with many claims.
func (r *report) controller(seen []full) {
	t := table{title: "the controller and its claims", columns: []string{"claims", "ready after a restart, s", "its memory, MB", "the agent's memory, MB"}}
	for _, x := range seen {
		base := fmt.Sprintf("controller/%d", x.claims)
		start, rss := newFigure(base+"/start", "s", []float64{x.start.Seconds()}), newFigure(base+"/rss", "MB", []float64{float64(x.rss) / 1e6})
		if x.claims >= 100_000 {
			start = start.aimed(fmt.Sprintf("a controller with %d claims: seconds until it is ready", x.claims), atMost(60))
			rss = rss.aimed(fmt.Sprintf("a controller with %d claims: its memory", x.claims), atMost(600))
		}
		t.rows = append(t.rows, []string{
			strconv.Itoa(x.claims), r.note(start), r.note(rss), r.note(newFigure(base+"/agent", "MB", []float64{float64(x.agent) / 1e6})),
		})
	}
	r.tables = append(r.tables, t)
	r.explain("the controller", fmt.Sprintf("VmRSS %v after it was started anew and was ready; all claims have addresses of one pool", settle))
}
