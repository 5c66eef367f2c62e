package e2e_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/tenure-ipam/tenure/test/process"
)

// A page is what kubectl tenure ui serves: its address, with the secret.
type page string

// servesPage runs kubectl tenure ui until the spec ends.
func (m mover) servesPage(ctx context.Context) page {
	GinkgoHelper()
	cmd := exec.CommandContext(ctx, m.program, "ui")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig())
	cmd.Stderr = GinkgoWriter
	address, err := process.FirstLine(cmd)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { _ = cmd.Process.Signal(os.Interrupt); _ = cmd.Wait() })
	return page(address)
}

// get returns what is served at a path below the page's, as JSON into v, or as text if that is nil.
func (p page) get(ctx context.Context, path string, query url.Values, v any) (code int, text string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, string(p)+path+"?"+query.Encode(), nil)
	if err != nil {
		return 0, "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && v != nil && resp.StatusCode == http.StatusOK {
		err = json.Unmarshal(body, v)
	}
	return resp.StatusCode, string(body), err
}

// expectOnPage expects that the page shows a pod's address, which no other pod than before has had.
func (s site) expectOnPage(ctx context.Context, p page, network string, a netip.Addr, before, now *corev1.Pod) {
	GinkgoHelper()
	code, text, err := p.get(ctx, "", nil, nil)
	Expect(err).NotTo(HaveOccurred())
	Expect(code).To(Equal(http.StatusOK))
	Expect(text).To(ContainSubstring("<title>Tenure</title>"))
	at, err := url.Parse(string(p))
	Expect(err).NotTo(HaveOccurred())
	code, _, err = page("http://"+at.Host+"/").get(ctx, "api/state", nil, nil)
	Expect(err).NotTo(HaveOccurred())
	Expect(code).To(Equal(http.StatusNotFound), "without the secret")

	pool := s.namespace + "-" + network
	var state struct {
		Pools []struct{ Name string } `json:"pools"`
	}
	_, text, err = p.get(ctx, "api/state", nil, &state)
	Expect(err).NotTo(HaveOccurred(), text)
	Expect(state.Pools).To(ContainElement(HaveField("Name", pool)))
	Eventually(func(g Gomega) {
		var has []struct{ Address, Owner string }
		_, text, err := p.get(ctx, "api/addresses", url.Values{"pool": {pool}, "first": {a.String()}}, &has)
		g.Expect(err).NotTo(HaveOccurred(), text)
		g.Expect(has).To(ContainElement(And(HaveField("Address", a.String()), HaveField("Owner", ContainSubstring(s.namespace+"/"+now.Name)))), text)
	}).Should(Succeed())

	// Agents are asked in their pods.
	var past struct {
		Holders []struct{ Namespace, Pod string }
		Nodes   []struct{ Name, Begins, Silent string }
	}
	_, text, err = p.get(ctx, "api/past", url.Values{"address": {a.String()}}, &past)
	Expect(err).NotTo(HaveOccurred(), text)
	Expect(past.Holders).To(ConsistOf(
		And(HaveField("Namespace", s.namespace), HaveField("Pod", before.Name)), And(HaveField("Namespace", s.namespace), HaveField("Pod", now.Name))), text)
	Expect(past.Nodes).To(HaveLen(len(c.Nodes)))
	Expect(past.Nodes).To(HaveEach(And(HaveField("Begins", Not(BeEmpty())), HaveField("Silent", BeEmpty()))), text)
}
