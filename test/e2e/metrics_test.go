package e2e_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tenure-ipam/tenure/test/cluster"
)

// Where programs on a node say what they have done.
const (
	agentMetrics   = "127.0.0.1:9471"
	runtimeMetrics = "127.0.0.1:1338"
)

// errNoSample says that a program shows no sample of a name and labels: a vector has none
// until the first of what it counts has happened.
var errNoSample = errors.New("no sample")

// fetch returns what is answered at a URL to whoever asks on a node. The caller closes it.
func fetch(n *cluster.Node, url string) (io.ReadCloser, error) {
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
	resp, err := client.Get(url)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, fmt.Errorf("%s on %s: %s", url, n.Name, resp.Status)
	}
	return resp.Body, nil
}

// metric returns the sum of a node's samples whose line begins with a prefix: a name,
// perhaps with labels. Where there is none, the error is errNoSample.
func metric(n *cluster.Node, address, prefix string) (sum float64, err error) {
	path := map[string]string{agentMetrics: "/metrics", runtimeMetrics: "/v1/metrics"}[address]
	body, err := fetch(n, "http://"+address+path)
	if err != nil {
		return 0, err
	}
	defer body.Close()
	found := false
	lines := bufio.NewScanner(body)
	for lines.Scan() {
		if line := lines.Text(); strings.HasPrefix(line, prefix) {
			value, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
			if err != nil {
				return 0, fmt.Errorf("%s of %s: %w", line, n.Name, err)
			}
			sum, found = sum+value, true
		}
	}
	if err := lines.Err(); err != nil {
		return 0, fmt.Errorf("%s of %s: %w", address, n.Name, err)
	}
	if !found {
		return 0, fmt.Errorf("%s of %s: %s: %w", address, n.Name, prefix, errNoSample)
	}
	return sum, nil
}

// memory returns the resident memory of a node's processes of the given program, in
// bytes: of the largest of them, none if there is none.
func memory(n *cluster.Node, program string) (most int64, err error) {
	const nameLength = 15 // as much of it as the kernel keeps
	found, err := filepath.Glob(n.Path("/proc/[0-9]*/status"))
	if err != nil {
		return 0, err
	}
	for _, path := range found {
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // it has ended meanwhile
		}
		if err != nil {
			return 0, err
		}
		var name string
		var kilobytes int64
		for line := range strings.Lines(string(text)) {
			key, value, _ := strings.Cut(line, ":")
			switch value = strings.TrimSpace(value); key {
			case "Name":
				name = value
			case "VmRSS":
				if _, err := fmt.Sscan(value, &kilobytes); err != nil {
					return 0, fmt.Errorf("%s of %s: %w", path, n.Name, err)
				}
			}
		}
		if name == program[:min(len(program), nameLength)] {
			most = max(most, kilobytes<<10)
		}
	}
	return most, nil
}
