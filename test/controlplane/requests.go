package controlplane

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"k8s.io/client-go/rest"
)

// A Request is a kind of request to the API server.
type Request struct {
	Verb     string // as its metrics have it: POST, PATCH, LIST, WATCH, ...
	Resource string // with the subresource behind a slash, if there is one
	Code     string // of the answer
}

func (r Request) String() string { return r.Verb + " " + r.Resource + " " + r.Code }

// Requests returns how many requests of each kind the API server has answered since
// it started.
func (cp *ControlPlane) Requests(ctx context.Context) (map[Request]float64, error) {
	cfg := cp.Config()
	hc, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, cfg.Host+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := hc.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET /metrics answers %s", resp.Status)
	}
	return readRequests(resp.Body)
}

// readRequests finds the counter of requests among the API server's metrics.
func readRequests(metrics io.Reader) (map[Request]float64, error) {
	counts := map[Request]float64{}
	lines := bufio.NewScanner(metrics)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		labels, ok := strings.CutPrefix(lines.Text(), "apiserver_request_total{")
		if !ok {
			continue
		}
		labels, value, ok := strings.Cut(labels, "} ")
		n, err := strconv.ParseFloat(value, 64)
		if !ok || err != nil {
			return nil, fmt.Errorf("metrics: %q is not understood", lines.Text())
		}
		of := map[string]string{}
		for label := range strings.SplitSeq(labels, ",") {
			k, v, _ := strings.Cut(label, "=")
			of[k] = strings.Trim(v, `"`)
		}
		r := Request{Verb: of["verb"], Resource: of["resource"], Code: of["code"]}
		if of["subresource"] != "" {
			r.Resource += "/" + of["subresource"]
		}
		counts[r] += n
	}
	return counts, lines.Err()
}
