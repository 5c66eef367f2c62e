package check

import (
	"time"

	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/audit"
)

// Apart is how far the two looks are apart where nobody says otherwise.
const Apart = 5 * time.Second

// A Result sums a report up in a word.
type Result string

// The results.
const (
	InOrder Result = "InOrder" // there is nothing, or what comes back by itself
	Notes   Result = "Notes"   // something is worth knowing, and nothing is wrong
	Wrong   Result = "Wrong"   // something is wrong
)

// A Report is what both looks have found, as json and yaml show it.
// docs/reference/kubectl-tenure.md has the fields.
type Report struct {
	Result Result    `json:"result"`
	Time   time.Time `json:"time"` // of the second look, by the API server's clock
	// Wrong, Notes and Settling are how many findings are of each kind.
	Wrong    int             `json:"wrong"`
	Notes    int             `json:"notes"`
	Settling int             `json:"settling"`
	Looked   Looked          `json:"looked"`
	Findings []audit.Finding `json:"findings"`
}

// Looked is how many objects were looked at.
type Looked struct {
	Pools     int `json:"pools"`
	Leases    int `json:"leases"`
	SubLeases int `json:"subLeases"`
	Claims    int `json:"claims"` // on pools
	Pods      int `json:"pods"`
	Nodes     int `json:"nodes"`
}

// report sums up what was found in a state.
func report(state audit.State, found []audit.Finding) Report {
	r := Report{Result: InOrder, Time: state.Now.UTC().Truncate(time.Second), Findings: append([]audit.Finding{}, found...), Looked: Looked{
		Pools: len(state.Pools), Leases: len(state.Leases), SubLeases: len(state.SubLeases), Pods: len(state.Pods), Nodes: len(state.Nodes),
	}}
	for _, c := range state.Claims {
		if len(c.Pools) > 0 {
			r.Looked.Claims++
		}
	}
	for _, f := range found {
		switch {
		case f.Wrong:
			r.Wrong++
		case f.Settling:
			r.Settling++
		default:
			r.Notes++
		}
	}
	switch {
	case r.Wrong > 0:
		r.Result = Wrong
	case r.Notes > 0:
		r.Result = Notes
	}
	return r
}
