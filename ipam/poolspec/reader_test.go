package poolspec

import (
	"fmt"
	"reflect"
	"sync"
	"testing"
)

// TestReaderReadsWhatParseConfigReads compares a Reader that has read a text before, with
// other CNI_ARGS, with [ParseConfig].
func TestReaderReadsWhatParseConfigReads(t *testing.T) {
	texts := []string{
		network(`"pool": "a"`),
		network(`"pool": "a", "log_level": "debug", "log_file": "/f", "name": "x"`),
		network(`"subnet": "10.0.0.0/24"`),
		network(`"pool": "a"`, `"runtimeConfig": {"ips": ["10.0.0.6"]}`),
		network(`"pool": "a"`, `"args": {"cni": {"ips": ["10.0.0.7/24"]}}`),
		network(`"pool": "a"`, `"prevResult": {"ips": [{"address": "10.0.0.6/24"}]}`),
		network(`"pool": "a"`, `"cni.dev/valid-attachments": []`),
		network(`"pool": "a"`, `"cniVersion": "0.2.0"`),
		network(`"pool": "a", "unknown": 1`),
		network(``),
		`{`,
	}
	args := []string{
		"", "IgnoreUnknown=1;K8S_POD_NAMESPACE=n;K8S_POD_NAME=p;K8S_POD_UID=u", "K8S_POD_NAME=q;K8S_POD_INFRA_CONTAINER_ID=c;" + ArgUnselected + "=1", "IgnoreUnknown=1;GATEWAY=10.0.0.1",
		"IP=10.0.0.9", "IP=10.0.0.9,x", "IP=1.2.3.4", "UNKNOWN=1", "IgnoreUnknown=maybe", "nothing", "IgnoreUnknown=1;X=1;IP=10.0.0.8",
	}
	for _, text := range texts {
		for _, before := range args {
			var r Reader
			_, _ = r.ParseConfig([]byte(text), before)
			for _, a := range args {
				sameReading(t, &r, []byte(text), a)
			}
		}
	}
}

// sameReading reports it if r reads something else than [ParseConfig].
func sameReading(t *testing.T, r *Reader, text []byte, args string) {
	t.Helper()
	want, wantErr := ParseConfig(text, args)
	for range 2 {
		got, err := r.ParseConfig(text, args)
		if fmt.Sprint(err) != fmt.Sprint(wantErr) || !reflect.DeepEqual(got, want) {
			t.Errorf("%s with %q: read %+v, %v; want %+v, %v", text, args, got, err, want, wantErr)
		}
	}
}

func TestReaderKeepsItsTextsApart(t *testing.T) {
	var r Reader
	for i := range 3 * maxKnown {
		sameReading(t, &r, []byte(network(fmt.Sprintf(`"pool": "p%d"`, i))), fmt.Sprintf("K8S_POD_NAME=p%d", i))
		if len(r.known) > maxKnown {
			t.Fatalf("%d texts are kept; want at most %d", len(r.known), maxKnown)
		}
	}
	text := []byte(network(`"pool": "long"`, `"x": "`+string(make([]byte, maxKnownText))+`"`))
	for i := range text {
		if text[i] == 0 {
			text[i] = 'x'
		}
	}
	sameReading(t, &r, text, "")
	if r.known[string(text)] != nil {
		t.Error("a text beyond the bound is kept")
	}
}

// TestReaderAtOnce has several read at a time, for the race detector.
func TestReaderAtOnce(t *testing.T) {
	var r Reader
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 100 {
				c, err := r.ParseConfig([]byte(network(`"pool": "a", "log_level": "x"`)), fmt.Sprintf("IgnoreUnknown=1;GATEWAY=g;K8S_POD_NAME=p%d", i))
				if err != nil || c.Pod.Name != fmt.Sprintf("p%d", i) || len(c.Ignored) != 2 {
					t.Errorf("read %+v, %v", c, err)
				}
			}
		})
	}
	wg.Wait()
}
