package monitoring

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/yaml"
)

// series are samples by the names and labels that they have, one a minute, as promtool writes them.
type series = map[string]string

// node is the label of what an agent says.
var node = map[string]string{"instance": "node-a"}

// cases are one of each alert, or more: what is collected, when it does not fire yet, when it does,
// with which labels besides its own, and what it says.
var cases = []struct {
	alert        string
	collected    series
	quiet, fires string
	labels       map[string]string
	says         string
}{
	{
		"TenureDown", series{`up{job="tenured",instance="node-a"}`: "1 0x20", `up{job="node-exporter",instance="node-a"}`: "0x20"}, "5m", "6m",
		map[string]string{"job": "tenured", "instance": "node-a"}, "node-a of tenured does not answer: none of the other alerts can tell of it",
	},
	{
		"TenureAgentNotServing", series{`tenure_agent_serving{instance="node-a"}`: "1 0x20", `tenure_agent_serving{instance="node-b"}`: "1 0 0 1x20"}, "5m", "6m", node,
		"the agent of node-a gives out no addresses: new pods of the node wait",
	},
	{
		"TenureAgentSilent", series{`tenure_agent_heartbeat_age_seconds{instance="node-a"}`: "0+100x4 500x5"}, "4m", "5m", node,
		"no heartbeat of the agent of node-a was accepted for 8m 20s; from the fence on it gives out nothing new",
	},
	{
		"TenureAddressesLost", series{`tenure_agent_attachments_lost{instance="node-a"}`: "0 3x5"}, "0m", "1m", node,
		"3 interfaces of pods on node-a have addresses that may be others' by now: delete their pods",
	},
	{
		"TenureForeignRights", series{`tenure_agent_foreign_rights{instance="node-a"}`: "0 2x20"}, "10m", "11m", node,
		"2 leases or sub-leases in the name of node-a are of a store that is not this machine's: nobody gives them back",
	},
	{
		"TenureStoreFaults", series{`tenure_agent_store_faults{instance="node-a"}`: "0x5", `tenure_agent_journal_damaged{instance="node-a"}`: "0 1x5"}, "0m", "1m", node,
		"the store or the journal of node-a has 1 faults: drain and reboot the node",
	},
	{
		"TenureAPIRewound", series{`tenure_agent_api_rewound_total{instance="node-a"}`: "0x5 1x100"}, "5m", "10m", node,
		"node-a saw the API server go back in time, as when etcd is restored: pools close until the agents have put their leases back",
	},
	{
		"TenureAttachNotConfigured", series{`tenure_attach_configured{instance="node-a"}`: "1 0x20"}, "5m", "6m", node,
		"the runtime of node-a attaches pods without tenure-attach, or not at all",
	},
	{
		"TenurePodsMissed", series{`tenure_attach_pods_missed{instance="node-a"}`: "0 4x5"}, "1m", "2m", node,
		"4 pods on node-a run without the networks that they select",
	},
	{
		"TenurePoolFull", series{`tenure_pool_addresses{pool="lan",state="free"}`: "1 0x5", `tenure_pool_addresses{pool="lan",state="unreachable"}`: "0x5"}, "0m", "1m",
		map[string]string{"pool": "lan", "state": "free"}, "pool lan has no free address: new pods and claims wait",
	},
	{
		"TenurePoolUnreachable", series{`tenure_pool_addresses{pool="lan",state="unreachable"}`: "0 16x40", `tenure_pool_addresses{pool="lan",state="free"}`: "5x40"}, "30m", "31m",
		map[string]string{"pool": "lan", "state": "unreachable"}, "16 addresses of pool lan are free and out of reach: a node does not answer, or has lost its store",
	},
	{
		"TenurePoolClosed", series{`tenure_pool_open{pool="lan"}`: "1 0x20"}, "5m", "6m", map[string]string{"pool": "lan"},
		"pool lan gives out no new blocks: see its condition Ready",
	},
	{
		"TenureAsksWait", series{`tenure_broker_waiting_asks{instance="c"}`: "0 7x20"}, "5m", "6m", map[string]string{"instance": "c"},
		"7 claims or requests wait for an address",
	},
	{
		"TenureTakeOverWaits", series{`tenure_takeover_waiting{instance="c"}`: "0 2x5"}, "0m", "1m", map[string]string{"instance": "c"},
		"2 leases and sub-leases of dead nodes wait for your word that the machines are off",
	},
	{ // promtool's clock begins at 0: of 14 days and ten minutes, ten minutes are over 10m from then
		"TenureCertificateEnds", series{`tenure_webhook_certificate_end_seconds{instance="c"}`: "1210200x40"}, "20m", "21m", map[string]string{"instance": "c"},
		"the certificate of PodNetworks' webhooks is not there, or ends within 14 days: then pods with a wrong list are created, and wait on their nodes",
	},
	{ // in a the second check fails, in b it takes five minutes; c has a job of somebody else's
		"TenureCheckFailed", series{
			`kube_cronjob_created{namespace="a",cronjob="tenure-check"}`: "1x200", `kube_cronjob_status_last_schedule_time{namespace="a",cronjob="tenure-check"}`: "60x59 3600x140",
			`kube_cronjob_status_last_successful_time{namespace="a",cronjob="tenure-check"}`: "360x200",
			`kube_cronjob_created{namespace="b",cronjob="tenure-check"}`:                     "1x200", `kube_cronjob_status_last_schedule_time{namespace="b",cronjob="tenure-check"}`: "60x59 3600x140",
			`kube_cronjob_status_last_successful_time{namespace="b",cronjob="tenure-check"}`: "360x64 3900x130",
			`kube_cronjob_created{namespace="c",cronjob="other"}`:                            "1x200", `kube_cronjob_status_last_schedule_time{namespace="c",cronjob="other"}`: "60x200",
		}, "94m", "95m", map[string]string{"namespace": "a", "cronjob": "tenure-check"},
		"the last check of the cluster found something wrong, or could not look: kubectl -n a logs -l app.kubernetes.io/name=tenure-check --tail=-1",
	},
	{ // none has succeeded yet
		"TenureCheckFailed", series{
			`kube_cronjob_created{namespace="a",cronjob="tenure-check"}`: "1x60", `kube_cronjob_status_last_schedule_time{namespace="a",cronjob="tenure-check"}`: "_x10 600x60",
		}, "44m", "45m", map[string]string{"namespace": "a", "cronjob": "tenure-check"},
		"the last check of the cluster found something wrong, or could not look: kubectl -n a logs -l app.kubernetes.io/name=tenure-check --tail=-1",
	},
}

// TestAlerts by promtool: each fires, and does not fire before, and says what and where.
func TestAlerts(t *testing.T) {
	rules, err := Alerts()
	if err != nil {
		t.Fatal(err)
	}
	file, err := AlertsFile()
	if err != nil {
		t.Fatal(err)
	}
	by := map[string]Rule{}
	for _, r := range rules {
		by[r.Alert] = r
	}
	var tests []any
	tested := map[string]bool{}
	for _, c := range cases {
		r, ok := by[c.alert]
		if !ok {
			t.Errorf("%s is not in %s", c.alert, file)
		}
		tested[c.alert] = true
		var collected []any
		for name, values := range c.collected {
			collected = append(collected, map[string]any{"series": name, "values": values})
		}
		labels := map[string]string{"severity": r.Labels["severity"]}
		maps.Copy(labels, c.labels)
		tests = append(tests, map[string]any{"name": c.alert, "interval": "1m", "input_series": collected, "alert_rule_test": []any{
			map[string]any{"alertname": c.alert, "eval_time": c.quiet},
			map[string]any{"alertname": c.alert, "eval_time": c.fires, "exp_alerts": []any{
				map[string]any{"exp_labels": labels, "exp_annotations": map[string]string{"summary": c.says, "runbook_url": r.Annotations["runbook_url"]}},
			}},
		}})
	}
	for name := range by {
		if !tested[name] {
			t.Errorf("%s is not tested: add a case", name)
		}
	}
	text, err := json.Marshal(map[string]any{"rule_files": []string{file}, "evaluation_interval": "1m", "tests": tests})
	if err != nil {
		t.Fatal(err)
	}
	if text, err = yaml.JSONToYAML(text); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "alerts.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Promtool(t.Context(), "test", "rules", path); err != nil {
		t.Error(err)
	}
}
