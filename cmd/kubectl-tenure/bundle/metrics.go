package bundle

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
)

// Where programs serve their metrics. Agents do so on their node's loopback alone, which no proxy
// of the API server's reaches: a port of the pod is forwarded.
var metricsPort = map[string]int{agentName: 9471, controllerName: 9473}

// metricsWithin is how long a program may take that is asked for its metrics.
const metricsWithin = 20 * time.Second

// mostMetrics bounds what is read of one program.
const mostMetrics = 16 << 20

// metricsOf are the metrics of a program.
func (b *bundle) metricsOf(o *corev1.Pod) part {
	return part{"metrics of " + o.Name + " on node " + o.Spec.NodeName, "create and get pods/portforward in namespace " + o.Namespace, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, metricsWithin)
		defer cancel()
		text, err := b.getFromPod(ctx, o, metricsPort[programOf(o)], "/metrics")
		if err != nil {
			return err
		}
		return b.addMetrics(o, text)
	}}
}

// addMetrics adds what a program has served.
func (b *bundle) addMetrics(o *corev1.Pod, text []byte) error {
	text = []byte(b.redact.scrub(string(text)))
	if programOf(o) == agentName {
		b.stores.note(o.Spec.NodeName, text)
	}
	return b.out.add("metrics/"+o.Name+".txt", text)
}

// getFromPod returns what is served on a port of a pod.
func (b *bundle) getFromPod(ctx context.Context, o *corev1.Pod, port int, path string) ([]byte, error) {
	conn, err := b.dial(ctx, o)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // what is read then ends
	defer stop()
	header := http.Header{}
	header.Set(corev1.PortHeader, strconv.Itoa(port))
	header.Set(corev1.PortForwardRequestIDHeader, "0")
	header.Set(corev1.StreamType, corev1.StreamTypeError)
	faults, err := conn.CreateStream(header)
	if err != nil {
		return nil, err
	}
	_ = faults.Close() // nothing is written to it
	header.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := conn.CreateStream(header)
	if err != nil {
		return nil, err
	}
	text, err := get(ctx, data, path)
	if err == nil {
		return text, nil
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("no answer within %v", metricsWithin)
	}
	said, _ := io.ReadAll(io.LimitReader(faults, 1<<10)) // why, where the node knows
	if said = bytes.TrimSpace(said); len(said) > 0 {
		err = fmt.Errorf("%w\n%s", err, said)
	}
	return nil, err
}

// get asks over a connection for what is at path.
func get(ctx context.Context, conn io.ReadWriter, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path, nil)
	if err != nil {
		return nil, err
	}
	req.Close = true
	if err := req.Write(conn); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", path, resp.Status)
	}
	return io.ReadAll(io.LimitReader(resp.Body, mostMetrics))
}

// dial opens a connection to ports of a pod, as kubectl port-forward does.
func (b *bundle) dial(ctx context.Context, o *corev1.Pod) (httpstream.Connection, error) {
	url := b.pods.RESTClient().Post().Resource("pods").Namespace(o.Namespace).Name(o.Name).SubResource("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(b.Rest)
	if err != nil {
		return nil, err
	}
	dialer, err := portforward.NewSPDYOverWebsocketDialerForStreaming(url, b.Rest)
	if err != nil {
		return nil, err
	}
	older := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, url)
	both := portforward.NewFallbackDialerForStreaming(dialer, older, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	type answer struct {
		conn httpstream.Connection
		err  error
	}
	dialed := make(chan answer, 1)
	go func() { // it has no end of its own
		conn, _, err := both.Dial(portforward.PortForwardProtocolV1Name)
		dialed <- answer{conn, err}
	}()
	select {
	case a := <-dialed:
		return a.conn, a.err
	case <-ctx.Done():
		return nil, fmt.Errorf("no answer within %v", metricsWithin)
	}
}

// storeMetrics are what tells of an agent's store.
var storeMetrics = []string{"tenure_agent_store_faults", "tenure_agent_journal_damaged", "tenure_agent_foreign_rights", "tenure_agent_attachments_lost"}

// note notes what the metrics of a node's agent say of its store.
func (s *stores) note(node string, metrics []byte) {
	var values []string
	for line := range strings.Lines(string(metrics)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if slices.Contains(storeMetrics, name) {
			values = append(values, strings.TrimPrefix(name, "tenure_agent_")+" "+value)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[string]string{}
	}
	s.all[node] = strings.Join(values, ", ")
}

// addStores adds what agents say of their stores.
func (b *bundle) addStores() error {
	if b.namespace != "" {
		return nil
	}
	var out strings.Builder
	out.WriteString("What the last check of each agent's store has found: it runs at the agent's start and hourly.\nA fault is in the agent's log as well: \"the store contradicts itself\".\n\n")
	for _, node := range slices.Sorted(maps.Keys(b.stores.all)) {
		fmt.Fprintf(&out, "%s: %s\n", node, b.stores.all[node])
	}
	if len(b.stores.all) == 0 {
		out.WriteString("No agent was asked, or none has answered: see errors.txt.\n")
	}
	return b.out.add("store-checks.txt", []byte(out.String()))
}

// addErrors adds what is missing.
func (b *bundle) addErrors() error {
	return b.out.add("errors.txt", []byte(b.redact.scrub(b.parts.text())))
}
