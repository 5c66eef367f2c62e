package moving

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/screen"
	"github.com/tenure-ipam/tenure/ipam/foreign"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
)

// foreignState is what import and export have read of a cluster.
type foreignState struct {
	definitions []foreign.Definition
	// pods are those that run, or will, and select a network. The others are idle: by
	// namespace/name.
	pods []foreign.Pod
	idle map[string]bool
	// shown are the addresses that whereabouts finds in the status of each, by namespace/name:
	// see shownBy. By default are those of the pod's default network.
	shown, byDefault map[string][]string
	// records are whereabouts' allocations, and reserved its reservations over all ranges.
	records, reserved []foreign.Record
	damaged           []string
	// whereabouts says that the cluster has whereabouts' kinds, and whereaboutsIn in which
	// namespace there are objects of them, "" if there are none.
	whereabouts   bool
	whereaboutsIn string
	pools         map[string]poolSeen // by name
}

// moveReport is what import or export finds, as json and yaml show it.
type moveReport struct {
	From     string        `json:"from"`
	To       string        `json:"to"`
	Segments []moveSegment `json:"segments"`
	// Faulty are definitions that cannot be read, Unread those of the IPAM to move from whose
	// ranges cannot, and Damaged records that cannot.
	Faulty  []string `json:"faulty,omitempty"`
	Unread  []string `json:"unread,omitempty"`
	Damaged []string `json:"damaged,omitempty"`
	// ByHand are definitions of IPAMs of which nothing is known, which a person has to
	// write for Tenure.
	ByHand []string `json:"byHand,omitempty"`
}

// moveSegment is the definitions whose ranges overlap.
type moveSegment struct {
	Ranges []string `json:"ranges"`
	// Switch are the definitions to be switched, and Switched those that are already.
	Switch   []string `json:"switch,omitempty"`
	Switched []string `json:"switched,omitempty"`
	// Pools are the pools that the definitions name while they name Tenure.
	Pools []string `json:"pools"`
	// InTheWay says what keeps the segment from being moved.
	InTheWay []string `json:"inTheWay,omitempty"`
	// Pods is how many running pods have an address by the definitions to be switched, and
	// Addresses how many those have.
	Pods      int `json:"pods"`
	Addresses int `json:"addresses"`
	// Kept is how many addresses are kept already for pods of other IPAMs.
	Kept int `json:"kept,omitempty"`
	// Findings are what the other IPAM's records and the pods' statuses do not agree in.
	Findings []string `json:"findings,omitempty"`
}

func (s moveSegment) name() string { return strings.Join(s.Ranges, ", ") }

// segmentsOf works out what there is to move from one IPAM to another, one of which is
// Tenure.
func segmentsOf(seen foreignState, from, to string) moveReport {
	report := moveReport{From: from, To: to, Segments: []moveSegment{}}
	known := []string{"", foreign.Type, foreign.TypeWhereabouts, foreign.TypeHostLocal, foreign.TypeLocal, "static"}
	for _, d := range seen.definitions {
		if d.Fault != "" {
			report.Faulty = append(report.Faulty, fmt.Sprintf("%s: %s", d, d.Fault))
		} else if d.Unread != "" && d.IPAM == from {
			report.Unread = append(report.Unread, fmt.Sprintf("%s: %s", d, d.Unread))
		} else if from == fromStatus && !slices.Contains(known, d.IPAM) {
			report.ByHand = append(report.ByHand, fmt.Sprintf("%s (%s)", d, d.IPAM))
		}
	}
	moves := func(d foreign.Definition) bool {
		return d.IPAM == from || to == foreign.Type && d.IPAM == to || from == foreign.Type && d.IPAM == foreign.TypeLocal
	}
	for _, group := range groups(seen.definitions) {
		if !slices.ContainsFunc(group, moves) {
			continue
		}
		if s := segmentOf(seen, group, from, to); len(s.Switch) > 0 || s.unfinished(seen) {
			report.Segments = append(report.Segments, s)
		}
	}
	slices.SortFunc(report.Segments, func(a, b moveSegment) int { return strings.Compare(a.name(), b.name()) })
	if from == foreign.TypeWhereabouts {
		report.Damaged = seen.damaged
	}
	return report
}

// unfinished reports whether a segment is on its way to Tenure: one that was Tenure's
// before is none of an import's business.
func (s moveSegment) unfinished(seen foreignState) bool {
	return s.Kept > 0 || slices.ContainsFunc(s.Pools, func(name string) bool {
		p, there := seen.pools[name]
		return !there || p.waits
	})
}

// place finds, of a definition that describes ranges without a name, the pool that has them. Where
// none has, it stays what it would be called for this definition alone.
func place(d *foreign.Definition, pools []poolspec.DomainPool) {
	p, ok, err := poolspec.Place(d.CIDRs, pools)
	switch {
	case err != nil && d.IPAM == foreign.Type:
		d.Fault = err.Error()
	case err != nil:
		d.Refused = err.Error()
	case ok:
		d.PoolsThen = []string{p.Name}
		if d.IPAM == foreign.Type {
			d.Pools = d.PoolsThen
		}
	}
}

// groups parts definitions into those that are of one segment: their subnets overlap, and
// neither says that it is another one.
func groups(all []foreign.Definition) (parts [][]foreign.Definition) {
	for _, d := range all {
		if d.Fault != "" || d.Unread != "" || len(d.CIDRs) == 0 {
			continue
		}
		joined := []foreign.Definition{d}
		parts = slices.DeleteFunc(parts, func(part []foreign.Definition) bool {
			if slices.ContainsFunc(part, func(o foreign.Definition) bool { return sameSegment(d, o) }) {
				joined = append(joined, part...)
				return true
			}
			return false
		})
		parts = append(parts, joined)
	}
	return parts
}

// sameSegment reports whether two definitions share addresses.
func sameSegment(a, b foreign.Definition) bool {
	return !apart(a, b) && slices.ContainsFunc(a.CIDRs, func(x netip.Prefix) bool { return slices.ContainsFunc(b.CIDRs, x.Overlaps) })
}

// apart reports whether two definitions say that they are of two segments.
func apart(a, b foreign.Definition) bool {
	domain := func(d foreign.Definition) string {
		switch d.Domain {
		case "":
			return d.NetworkName
		case poolspec.DefaultDomain:
			return ""
		}
		return d.Domain
	}
	x, y := domain(a), domain(b)
	return x != y && (x != "" && y != "" || a.Domain != "" || b.Domain != "")
}

// segmentOf reports on one segment.
func segmentOf(seen foreignState, group []foreign.Definition, from, to string) (s moveSegment) {
	for _, d := range group {
		for _, c := range d.CIDRs {
			s.Ranges = append(s.Ranges, c.String())
		}
		if to == foreign.Type && d.IPAM != from && d.IPAM != to && seen.shares(d, group, from) {
			continue
		}
		switch d.IPAM {
		case foreign.TypeLocal:
			then := "remove its key mode"
			if to != foreign.Type {
				s.Switch = append(s.Switch, d.String())
				then = "write it for " + to
			}
			s.InTheWay = append(s.InTheWay, fmt.Sprintf("definition %s has mode local: each node gives addresses of the segment by itself, and what its pods have is on the nodes' disks alone. "+
				"Delete these pods, %s by hand, and make them anew", d, then))
		case from:
			s.Switch = append(s.Switch, d.String())
			s.Pools = append(s.Pools, d.PoolsThen...)
			if d.Refused != "" {
				s.InTheWay = append(s.InTheWay, fmt.Sprintf("definition %s cannot name Tenure before it is corrected: %s", d, d.Refused))
			}
			if to == foreign.Type {
				s.InTheWay = append(s.InTheWay, seen.misnamed(d)...)
			}
		case to:
			s.Switched = append(s.Switched, d.String())
			s.Pools = append(s.Pools, d.PoolsThen...)
		default:
			s.InTheWay = append(s.InTheWay, fmt.Sprintf("definition %s names %s, which may give addresses of the segment: move it too, part the ranges, or set its annotation tenure.dev/domain if it is another segment", d, d.IPAM))
		}
	}
	for _, d := range seen.definitions {
		if d.Unread != "" && d.IPAM != to && !(to == foreign.Type && seen.shares(d, group, from)) && slices.ContainsFunc(group, func(o foreign.Definition) bool { return !apart(d, o) }) {
			s.InTheWay = append(s.InTheWay, fmt.Sprintf("definition %s names %s and may give addresses of the segment, since its ranges cannot be read (%s): correct it, or set its annotation tenure.dev/domain if it is another segment", d, d.IPAM, d.Unread))
		}
	}
	if to == foreign.Type {
		s.InTheWay = append(s.InTheWay, seen.twoPools(group, from)...)
	}
	for _, list := range []*[]string{&s.Ranges, &s.Switch, &s.Switched, &s.Pools, &s.InTheWay} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	s.compare(seen, group, from)
	return s
}

// left is how many definitions are to be switched.
func (r moveReport) left() (n int) {
	for _, s := range r.Segments {
		n += len(s.Switch)
	}
	return n
}

// podsKeep says what running pods have of a segment.
func (s moveSegment) podsKeep() string {
	has := fmt.Sprintf("%s %s of it, and ", screen.Number(s.Pods, "running pod has", "running pods have"), screen.Number(s.Addresses, "address", "addresses"))
	switch s.Pods {
	case 0:
		return "no running pod has an address of it"
	case 1:
		return has + "keeps what it has"
	}
	return has + "keep them"
}

// lines writes the report for people.
func (r moveReport) lines() (lines []string) {
	switch {
	case len(r.Segments) > 0, len(r.Unread) > 0:
	case r.From == fromStatus:
		lines = append(lines, "No pool waits, and nothing is kept for pods of other IPAMs.")
	default:
		lines = append(lines, fmt.Sprintf("There is no definition that names %s.", r.From))
	}
	for _, d := range r.ByHand {
		lines = append(lines, fmt.Sprintf("Definition %s: write its ipam section for Tenure by hand, with a range or a pool; what its pods show in their status is then kept for them", d))
	}
	for _, s := range r.Segments {
		lines = append(lines, fmt.Sprintf("Segment %s", s.name()))
		add := func(what string, of []string) {
			if len(of) > 0 {
				lines = append(lines, fmt.Sprintf("  %-12s %s", what, strings.Join(of, ", ")))
			}
		}
		add("to switch", s.Switch)
		add("switched", s.Switched)
		add("pools", s.Pools)
		if len(s.Switch) > 0 {
			lines = append(lines, "  pods         "+s.podsKeep())
		}
		if s.Kept > 0 {
			lines = append(lines, "  kept         "+screen.Number(s.Kept, "address is", "addresses are")+" kept for pods of other IPAMs")
		}
		for _, w := range s.InTheWay {
			lines = append(lines, "  in the way   "+w)
		}
		for _, f := range s.Findings {
			lines = append(lines, "  note         "+f)
		}
	}
	if len(r.Segments) > 0 && r.From != fromStatus && r.left() == 0 {
		lines = append(lines, fmt.Sprintf("Nothing is left to switch: no definition of these names %s.", r.From))
	}
	for _, f := range r.Faulty {
		lines = append(lines, "Definition that cannot be read: "+f)
	}
	for _, u := range r.Unread {
		lines = append(lines, fmt.Sprintf("Definition whose ranges cannot be read, by which %s may give any address: %s: correct it", r.From, u))
	}
	for _, d := range r.Damaged {
		lines = append(lines, "Damaged record, which keeps nothing: "+d)
	}
	return lines
}
