package nodes_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/attach/node/ready"
	"github.com/tenure-ipam/tenure/cmd/tenured/daemon"
	"github.com/tenure-ipam/tenure/test/controlplane"
	"github.com/tenure-ipam/tenure/test/monitoring"
)

// TestPrometheusAnswersDashboards: a real Prometheus reads agents and the controller, where each
// kind of trouble that is counted has happened once. Every panel has data, and every metric that
// an alert names is there.
func TestPrometheusAnswersDashboards(t *testing.T) {
	w := newNetwork(t, "boards", 0, cidr("10.71.0.0/29")) // six addresses, in blocks of one
	var agents []string
	w.fleet.Change = func(c *daemon.Config) {
		quick(c)
		address, err := controlplane.FreeAddress()
		if err != nil {
			t.Fatal(err)
		}
		c.Listen, agents = address, append(agents, address)
		c.Ready = ready.DefaultConfig()
		c.Ready.Dir = t.TempDir()
		c.Ready.Source = filepath.Join(c.Ready.Dir, "source")
	}
	w.start(2)
	server := w.prometheus(agents)
	eventually(t, 10*time.Second, func() error { // a trend begins with what was free
		return server.WithoutData(t.Context(), []monitoring.Query{{Where: w.name, Expr: `tenure_pool_addresses{pool="boards",state="free"} > 0`}})
	})

	first, second := w.attached(w.nodes[0], "boards-first"), w.attached(w.nodes[1], "boards-second")
	refused := w.run(w.nodes[1], "boards-refused").asks(first.addrs[0].Addr().String())
	if _, err := w.nodes[1].Add(refused.Interface); err == nil {
		t.Error("a pod got the address of another")
	}
	for i := range 4 { // what is left, but for what a node may have ahead of need
		w.claim(fmt.Sprintf("boards-%d", i))
	}
	claimSays(t, w.claim("boards-late"), metav1.ConditionFalse, "SubnetExhausted")

	panels, err := monitoring.Panels()
	if err != nil {
		t.Fatal(err)
	}
	all, err := monitoring.Queries()
	if err != nil {
		t.Fatal(err)
	}
	all = slices.DeleteFunc(monitoring.Named(all), func(q monitoring.Query) bool {
		return strings.Contains(q.Expr, "tenure_webhook_certificate") // of a controller that serves webhooks
	})
	eventually(t, 30*time.Second, func() error { return server.WithoutData(t.Context(), append(panels, all...)) })
	wrong := monitoring.Query{Where: "wrong", Expr: `tenure_pool_addresses{state="freed"}`}
	if err := server.WithoutData(t.Context(), []monitoring.Query{wrong}); err == nil {
		t.Error("a state that there is none of has data")
	}
	first.end(t)
	second.end(t)
}

// prometheus starts one that reads the controller, and agents at their addresses.
func (w *network) prometheus(agents []string) *monitoring.Prometheus {
	w.t.Helper()
	address, err := controlplane.FreeAddress()
	if err != nil {
		w.t.Fatal(err)
	}
	p, err := monitoring.Prepare(w.t.TempDir(), address, fmt.Sprintf(`
global: {scrape_interval: 1s}
scrape_configs:
- {job_name: tenured, static_configs: [{targets: ["%s"]}]}
- {job_name: tenure-controller, static_configs: [{targets: ["%s"]}]}
`, strings.Join(agents, `", "`), controllerMetrics))
	if err != nil {
		w.t.Fatal(err)
	}
	must(w.t, p.Start(w.t.Context()))
	w.t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			w.t.Error(err)
		}
	})
	return p
}
