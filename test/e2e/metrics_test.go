package e2e_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tenure-ipam/tenure/test/cluster"
)

// Where programs on a node say what they have done.
const (
	agentMetrics   = "127.0.0.1:9471"
	runtimeMetrics = "127.0.0.1:1338"
)

// metric returns the sum of a node's samples whose line begins with a prefix: a name,
// perhaps with labels.
func metric(n *cluster.Node, address, prefix string) (sum float64, err error) {
	path := map[string]string{agentMetrics: "/metrics", runtimeMetrics: "/v1/metrics"}[address]
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(_ context.Context, network, address string) (conn net.Conn, err error) {
			err = n.Do(func() (err error) {
				conn, err = net.DialTimeout(network, address, time.Second)
				return err
			})
			return conn, err
		},
	}}
	resp, err := client.Get("http://" + address + path)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	found := false
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if line := lines.Text(); strings.HasPrefix(line, prefix) {
			value, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
			if err != nil {
				return 0, fmt.Errorf("%s of %s: %w", line, n.Name, err)
			}
			sum, found = sum+value, true
		}
	}
	if !found {
		return 0, fmt.Errorf("%s of %s has no %s", address, n.Name, prefix)
	}
	return sum, nil
}
