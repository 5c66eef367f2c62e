package imports

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-ipam/tenure/test/monitoring"
)

// runbooks is where the links of alerts lead.
const runbooks = "https://github.com/tenure-ipam/tenure/blob/main/docs/operations/troubleshooting.md#"

// TestAlertsLeadToWhatEndsThem: each links to a paragraph of troubleshooting, and the reference
// has its row, with that paragraph.
func TestAlertsLeadToWhatEndsThem(t *testing.T) {
	docs := documents(t)
	alerts, err := monitoring.Alerts()
	if err != nil {
		t.Fatal(err)
	}
	const page = "docs/operations/troubleshooting.md"
	var rows []string
	for _, a := range alerts {
		anchor, ok := strings.CutPrefix(a.Annotations["runbook_url"], runbooks)
		at := slices.Index(anchors(docs[page]), anchor)
		if !ok || at < 0 {
			t.Errorf("%s links to %q; want a heading of %s", a.Alert, a.Annotations["runbook_url"], page)
			continue
		}
		if s := a.Labels["severity"]; s != "critical" && s != "warning" {
			t.Errorf("%s has the severity %q; want critical or warning", a.Alert, s)
		}
		title := heading.FindAllStringSubmatch(fence.ReplaceAllString(docs[page], ""), -1)[at][1]
		long := "at once"
		if a.For != "" {
			long = a.For
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s | `%s` | %s | [%s](../operations/troubleshooting.md#%s) |", a.Alert, a.Labels["severity"], a.Expr, long, title, anchor))
	}
	there := regexp.MustCompile("(?m)^\\| `Tenure.*$").FindAllString(docs["docs/reference/metrics.md"], -1)
	if !slices.Equal(there, rows) {
		t.Errorf("docs/reference/metrics.md must have these rows of alerts:\n%s\nIt has\n%s", strings.Join(rows, "\n"), strings.Join(there, "\n"))
	}
}

// TestQueriesNameMetrics that the programs have.
func TestQueriesNameMetrics(t *testing.T) {
	queries, err := monitoring.Queries()
	if err != nil {
		t.Fatal(err)
	}
	w, named := said(t), map[string]bool{}
	for _, q := range queries {
		for _, name := range q.Metrics() {
			named[name] = true
			if strings.HasPrefix(name, "tenure_") && !w.metrics[name] {
				t.Errorf("%s: there is no metric %s: %s", q.Where, name, q.Expr)
			}
		}
	}
	if len(named) < 30 {
		t.Errorf("only %d metrics are named; want those of all dashboards", len(named))
	}
}
