package main

import (
	"encoding/json"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tenure-ipam/tenure/ipam/history"
)

func TestHistory(t *testing.T) {
	dir := t.TempDir()
	now := time.Now().UTC()
	h, err := history.OpenFile(filepath.Join(dir, "history"), "n1", history.DefaultBounds, now.Add(-3*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	had := history.Holding{Address: netip.MustParseAddr("10.0.0.5"), Pool: "lan", Network: "lan", Namespace: "shop", Pod: "web", Container: "c1", Interface: "net1", Node: "n1"}
	err = h.Append([]history.Event{
		{Time: now.Add(-2 * time.Hour), What: history.Given, Holding: had}, {Time: now.Add(-time.Hour), What: history.Freed, Holding: had},
	}, now)
	if err != nil {
		t.Fatal(err)
	}
	store := "--store=" + filepath.Join(dir, "store.db")
	for _, tt := range []struct {
		args string
		want string
		lack string
	}{
		{"10.0.0.5 --at=90m", `"pod":"web"`, ""},
		{"::ffff:10.0.0.5 --since=7d", `"pod":"web"`, ""},
		{"10.0.0.5 --at=30m", `{"extent":{"node":"n1","begins":"` + now.Add(-3*time.Hour).Format("2006-01-02T15"), `"pod":`},
		{"10.0.0.6 --since=7d", `{"extent":`, `"pod":`},
		// kubectl's clock is ahead.
		{"10.0.0.5 --at=" + now.Add(time.Hour).Format(time.RFC3339), `{"extent":`, `"pod":`},
		{"10.0.0.5 --since=1d --debug --fence=10m", `"pod":"web"`, ""}, // with flags that the agent has
	} {
		said, err := call(t, append([]string{"history", store}, strings.Fields(tt.args)...)...)
		if err != nil || !strings.Contains(said, tt.want) || tt.lack != "" && strings.Contains(said, tt.lack) {
			t.Errorf("%s: %v, %s; want %s, and not %s", tt.args, err, said, tt.want, tt.lack)
		}
	}
	for args, want := range map[string]string{
		"":                              "give one address: see tenured history --help",
		"10.0.0.5 10.0.0.6 --at=1h":     "give one address",
		"10.0.0 --at=1h":                `"10.0.0" is no IP address`,
		"10.0.0.5":                      "give --at or --since",
		"10.0.0.5 --at=1h --since=1h":   "give one of --at and --since",
		"10.0.0.5 --at=yesterday":       `--at: "yesterday" is no time`,
		"10.0.0.5 --at=1h --store=/x/y": "this node keeps no history: there are no files in /x/history",
		"10.0.0.5 --at=1h --store=/x/y --history-size=0": "it is off, by --history-size or --history-age",
		"10.0.0.5 --nonsense":                            "unknown flag: --nonsense: see tenured history --help",
	} {
		_, err := call(t, append([]string{"history", store}, strings.Fields(args)...)...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %s", args, err, want)
		}
	}
}

// TestChartTakesSizes: the chart's schema takes what the agent takes, and nothing with which it
// would not start.
func TestChartTakesSizes(t *testing.T) {
	text, err := os.ReadFile("../../deploy/chart/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	type value struct{ Pattern string }
	var schema struct {
		Properties struct {
			Agent struct {
				Properties struct {
					History struct{ Properties struct{ Size, Age value } }
				}
			}
		}
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	values := schema.Properties.Agent.Properties.History.Properties
	for flag, of := range map[string]struct {
		pattern string
		values  []string
	}{
		"--history-size": {values.Size.Pattern, []string{
			"0", "1", "01", "-1", "1048575", "1048576", "1048579", "1048580", "1048600", "1049000", "1050000", "1100000", "999999", "1000000", "2000000", "9999999",
			"10000000", "64ki", "64Ki", "64k", "1023Ki", "1024Ki", "1029Ki", "1030Ki", "1100Ki", "2000Ki", "9999Ki", "10000Ki", "1048k", "1049k", "1050k", "1100k",
			"10000k", "1M", "2M", "10M", "1Mi", "64Mi", "64mi", "1G", "1Gi", "1gi", "1T", "1Ti", "64MB", "0Mi", "Mi", "99Ti", "99999Gi",
			"99999Mi", "99999T", "99999G", "99999M", "99999999999Ki", "999999999999k", "999999999999999999", "99999999999999Ti", "99999999999999999999",
		}},
		"--history-age": {values.Age.Pattern, []string{"0", "90", "1h", "36h", "90d", "99999d", "100001d", "9999999d", "99999h", "1w", "-1d", "0d"}},
	} {
		pattern := regexp.MustCompile(of.pattern)
		for _, v := range of.values {
			_, err := parse([]string{flag + "=" + v, "--node=n"}, none, io.Discard)
			odd := v == "01" || v == "Mi" || v == "0Mi" || v == "0d" // 0 and 1 written otherwise
			if chart := pattern.MatchString(v); chart != (err == nil) && !odd {
				t.Errorf("%s=%s: the chart takes it: %v; the agent: %v", flag, v, chart, err)
			}
		}
	}
	// Helm writes numbers so.
	for _, whole := range []string{"1.048576e+06", "2.097153e+06", "1.234567890123456e+15", "1e+15"} {
		if _, err := parse([]string{"--history-size=" + whole, "--node=n"}, none, io.Discard); err != nil {
			t.Errorf("%s: %v", whole, err)
		}
	}
}

func TestHistoryFlags(t *testing.T) {
	for args, want := range map[string]history.Bounds{
		"": history.DefaultBounds, "--history-size=1Gi --history-age=7d": {Size: 1 << 30, Age: 7 * 24 * time.Hour}, "--history-age=36h": {Size: 64 << 20, Age: 36 * time.Hour},
		"--history-size=0": {Age: 90 * 24 * time.Hour}, "--history-size=2000000": {Size: 2_000_000, Age: 90 * 24 * time.Hour}, "--history-age=0": {Size: 64 << 20},
	} {
		opts, err := parse(append(strings.Fields(args), "--node=n"), none, nil)
		if err != nil || opts.daemon.HistoryBounds != want {
			t.Errorf("%q: %+v, %v", args, opts.daemon.HistoryBounds, err)
		}
	}
	for args, want := range map[string]string{
		"--history-size=1Ki": "give 1048576 (1Mi) or more, or 0", "--history-size=-1": "write a number of bytes such as 64Mi", "--history-size=much": "write a number of bytes",
		"--history-age=1m": "give 1h or more, or 0", "--history-age=long": "write one such as 7d",
	} {
		var quiet strings.Builder
		if _, err := parse(append(strings.Fields(args), "--node=n"), none, &quiet); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %s", args, err, want)
		}
	}
}
