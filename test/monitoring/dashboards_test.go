package monitoring

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDashboardsImport: each has what Grafana needs to take it, and what it shows is laid out.
func TestDashboardsImport(t *testing.T) {
	boards, err := Dashboards()
	if err != nil {
		t.Fatal(err)
	}
	if len(boards) < 3 {
		t.Errorf("there are %d dashboards; want those of pools, ADDs and nodes", len(boards))
	}
	files := map[string]string{} // by what must be of one dashboard
	for _, name := range slices.Sorted(maps.Keys(boards)) {
		d := boards[name]
		for _, own := range []string{"uid " + d.UID, "title " + d.Title} {
			if files[own] != "" {
				t.Errorf("%s has the %s, as %s has", name, own, files[own])
			}
			files[own] = name
		}
		if d.UID == "" || d.Title == "" || d.SchemaVersion == 0 || len(d.Panels) == 0 {
			t.Errorf("%s has uid %q, title %q, schemaVersion %d and %d panels; Grafana wants each", name, d.UID, d.Title, d.SchemaVersion, len(d.Panels))
		}
		for _, fault := range faults(d) {
			t.Errorf("%s: %s", name, fault)
		}
	}
}

// variable is the name of one in a query or a definition. Those that begin with __ are Grafana's.
var variable = regexp.MustCompile(`\$\{?(\w+)`)

// faults returns what is wrong with a dashboard.
func faults(d Dashboard) (all []string) {
	fault := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	variables := map[string]bool{}
	for _, v := range d.Templating.List {
		variables[v.Name] = true
	}
	if v := d.Templating.List; len(v) == 0 || v[0].Type != "datasource" || v[0].Name != "datasource" {
		fault("its first variable must be the data source, by which whoever imports it says which Prometheus")
	}
	ids := map[int]bool{}
	for i, p := range d.Panels {
		if p.ID == 0 || ids[p.ID] || p.Title == "" {
			fault("panel %d has the id %d and the title %q; want an id of its own, and a title", i, p.ID, p.Title)
		}
		ids[p.ID] = true
		g := p.GridPos
		if g.W < 1 || g.H < 1 || g.X < 0 || g.Y < 0 || g.X+g.W > 24 {
			fault("panel %q lies at %+v, outside the 24 columns", p.Title, g)
		}
		for _, o := range d.Panels[:i] {
			if b := o.GridPos; g.X < b.X+b.W && b.X < g.X+g.W && g.Y < b.Y+b.H && b.Y < g.Y+g.H {
				fault("panels %q and %q overlap", o.Title, p.Title)
			}
		}
		if p.Type == "row" {
			continue
		}
		if p.Datasource.Type != "prometheus" || p.Datasource.UID != "${datasource}" || len(p.Targets) == 0 {
			fault("panel %q has the data source %+v and %d queries; want the variable, and one query", p.Title, p.Datasource, len(p.Targets))
		}
		refs := map[string]bool{}
		for _, q := range p.Targets {
			if q.RefID == "" || refs[q.RefID] || q.LegendFormat == "" {
				fault("panel %q: a query has the refId %q and the legend %q; want a refId of its own, and a legend", p.Title, q.RefID, q.LegendFormat)
			}
			refs[q.RefID] = true
			for _, m := range variable.FindAllStringSubmatch(q.Expr, -1) {
				if !variables[m[1]] && !strings.HasPrefix(m[1], "__") {
					fault("panel %q: %s has the variable %s, which the dashboard lacks", p.Title, q.Expr, m[1])
				}
			}
		}
	}
	return all
}

// TestFaultsAreSeen: what Grafana would refuse or draw wrong is found.
func TestFaultsAreSeen(t *testing.T) {
	good, err := Dashboards()
	if err != nil {
		t.Fatal(err)
	}
	for what, spoil := range map[string]func(d *Dashboard){
		"data source":      func(d *Dashboard) { d.Templating.List = d.Templating.List[1:] },
		"id of its own":    func(d *Dashboard) { d.Panels[2].ID = d.Panels[1].ID },
		"overlap":          func(d *Dashboard) { d.Panels[2].GridPos = d.Panels[1].GridPos },
		"outside":          func(d *Dashboard) { d.Panels[1].GridPos.X = 20 },
		"the variable":     func(d *Dashboard) { d.Panels[1].Datasource.UID = "my-prometheus" },
		"a legend":         func(d *Dashboard) { d.Panels[1].Targets[0].LegendFormat = "" },
		"dashboard lacks":  func(d *Dashboard) { d.Panels[1].Targets[0].Expr = "up{job=~\"$jobs\"}" },
		"refId of its own": func(d *Dashboard) { d.Panels[1].Targets = append(d.Panels[1].Targets, d.Panels[1].Targets[0]) },
	} {
		d := good["pools.json"]
		d.Panels = slices.Clone(d.Panels)
		d.Panels[1].Targets = slices.Clone(d.Panels[1].Targets)
		spoil(&d)
		if got := strings.Join(faults(d), "\n"); !strings.Contains(got, what) {
			t.Errorf("%s: found is %q", what, got)
		}
	}
}

// TestQueriesParse by Prometheus' own parser.
func TestQueriesParse(t *testing.T) {
	queries, err := Queries()
	if err != nil {
		t.Fatal(err)
	}
	if err := Promtool(t.Context(), "check", "rules", rulesOf(t, queries)); err != nil {
		t.Error(err)
	}
	wrong := Query{"wrong", "sum by (pool) (tenure_pool_addresses{state=})"}
	if err := Promtool(t.Context(), "check", "rules", rulesOf(t, append(queries, wrong))); err == nil || !strings.Contains(err.Error(), "parse error") {
		t.Errorf("a query that does not parse: %v; want it refused", err)
	}
}

// rulesOf writes queries as rules that record their answers, which promtool reads.
func rulesOf(t *testing.T, queries []Query) string {
	t.Helper()
	text := "groups:\n- name: queries\n  rules:\n"
	for i, q := range queries {
		text += fmt.Sprintf("  - record: query:number:%d\n    labels: {where: %q}\n    expr: %q\n", i, q.Where, q.Expr)
	}
	path := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestMetricsAreSeen: of a query, the metrics are known, and nothing that looks like one.
func TestMetricsAreSeen(t *testing.T) {
	q := Query{Expr: `histogram_quantile(0.5, rate(tenure_a_seconds_bucket{job=~"tenure_x.*"}[5m])) + tenure_b{tenure="c"}`}
	if got, want := q.Metrics(), []string{"tenure_a_seconds", "tenure_b"}; !slices.Equal(got, want) {
		t.Errorf("%s names %q; want %q", q.Expr, got, want)
	}
}
