// Package monitoring reads what Tenure ships for Grafana and Prometheus, its dashboards and alerts,
// and asks Prometheus' own programs about it.
package monitoring

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/tenure-ipam/tenure/test/programs"
)

// A Dashboard is what Grafana imports, as far as tests look at it.
type Dashboard struct {
	UID, Title    string
	SchemaVersion int
	Templating    struct{ List []Variable }
	Panels        []Panel
}

// A Variable is what a person chooses at the top of a dashboard.
type Variable struct {
	Name, Type string
}

// A Panel is one picture, or the line of a title.
type Panel struct {
	ID          int
	Type, Title string
	Datasource  struct{ Type, UID string }
	GridPos     struct{ X, Y, W, H int }
	Targets     []struct{ RefID, Expr, LegendFormat string }
}

// A Rule is an alert.
type Rule struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

// A Query is what a panel or an alert asks Prometheus.
type Query struct {
	Where string // for messages
	Expr  string // in PromQL
}

// AlertsFile returns the path of the file of alerts.
func AlertsFile() (string, error) {
	root, err := programs.Root()
	return filepath.Join(root, "deploy/alerts/tenure.yaml"), err
}

// Alerts reads them.
func Alerts() ([]Rule, error) {
	path, err := AlertsFile()
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var file struct{ Groups []struct{ Rules []Rule } }
	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var all []Rule
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all, nil
}

// Dashboards reads them, by the names of their files.
func Dashboards() (map[string]Dashboard, error) {
	root, err := programs.Root()
	if err != nil {
		return nil, err
	}
	paths, err := filepath.Glob(filepath.Join(root, "deploy/dashboards/*.json"))
	if err != nil {
		return nil, err
	}
	all := map[string]Dashboard{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		var d Dashboard
		if err := json.Unmarshal(text, &d); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all[filepath.Base(path)] = d
	}
	return all, nil
}

// chosen are values of the variables, as Grafana puts them into a query where a person has chosen
// nothing.
var chosen = strings.NewReplacer("$__rate_interval", "5m", "$trend", "6h", "$pool", ".*", "$node", ".*")

// Panels returns what all panels ask.
func Panels() ([]Query, error) {
	boards, err := Dashboards()
	if err != nil {
		return nil, err
	}
	var all []Query
	for name, d := range boards {
		for _, p := range d.Panels {
			for _, t := range p.Targets {
				all = append(all, Query{fmt.Sprintf("%s: %s: %s", name, p.Title, t.RefID), chosen.Replace(t.Expr)})
			}
		}
	}
	slices.SortFunc(all, func(a, b Query) int { return strings.Compare(a.Where, b.Where) })
	return all, nil
}

// Queries returns what all panels and alerts ask.
func Queries() ([]Query, error) {
	all, err := Panels()
	if err != nil {
		return nil, err
	}
	rules, err := Alerts()
	for _, r := range rules {
		all = append(all, Query{r.Alert, r.Expr})
	}
	return all, err
}

// Named returns a query for each metric that queries name. It is answered wherever the metric is.
func Named(queries []Query) (all []Query) {
	seen := map[string]bool{}
	for _, q := range queries {
		for _, name := range q.Metrics() {
			if !seen[name] {
				all = append(all, Query{q.Where, fmt.Sprintf(`{__name__=~"%s(_count)?"}`, name)})
			}
			seen[name] = true
		}
	}
	return all
}

var (
	metric  = regexp.MustCompile(`\b(tenure|process)_[a-z0-9_]+`)
	matched = regexp.MustCompile(`"[^"]*"`)
	part    = regexp.MustCompile(`_(bucket|sum|count)$`)
)

// Metrics returns the metrics that a query names: of a histogram, not those of its parts.
func (q Query) Metrics() (names []string) {
	for _, name := range metric.FindAllString(matched.ReplaceAllString(q.Expr, `""`), -1) {
		names = append(names, part.ReplaceAllString(name, ""))
	}
	return names
}
