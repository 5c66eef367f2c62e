package operator_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	ships "github.com/tenure-ipam/tenure/cmd/tenure-controller/controller"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/test/fleet"
	"github.com/tenure-ipam/tenure/test/process"
	"github.com/tenure-ipam/tenure/test/programs"
)

// servePage runs kubectl tenure ui until the test ends, and returns the page's address.
func servePage(t *testing.T, flags ...string) string {
	t.Helper()
	cmd := command(t, append([]string{"ui"}, flags...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	address, err := process.FirstLine(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Cancel(); _ = cmd.Wait() })
	return address
}

// A tab is one of a browser.
type tab struct {
	*testing.T
	ctx context.Context
}

// browser starts a headless Chromium, in which a name of a site leads to this machine, too.
func browser(t *testing.T) tab {
	t.Helper()
	rig, err := programs.RigDir()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(rig, "chromium", "chromium")
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("there is no browser: run `make rig-chromium`: %v", err)
	}
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.WindowSize(1280, 720), chromedp.WSURLReadTimeout(time.Minute),
		chromedp.Flag("host-resolver-rules", "MAP evil.example 127.0.0.1"))...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	// The browser lives as long as the context of its first action.
	if err := chromedp.Do(ctx, chromedp.Navigate("about:blank")); err != nil {
		t.Fatal(err)
	}
	return tab{t, ctx}
}

// do has the browser do something, within a minute.
func (b tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	within, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	if err := chromedp.Do(within, actions...); err != nil {
		text, _ := chromedp.Run(b.ctx, chromedp.Evaluate[string](`document.body.innerText`))
		b.Fatalf("%v; the page says:\n%s", err, text)
	}
}

// evaluate returns what a JavaScript expression is.
func evaluate[T any](b tab, expression string) T {
	b.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.Fatalf("%s: %v", expression, err)
	}
	return v
}

// until waits until a JavaScript expression is true.
func (b tab) until(expression string) {
	b.Helper()
	for deadline := time.Now().Add(time.Minute); !evaluate[bool](b, "Boolean("+expression+")"); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.Fatalf("not after a minute: %s; the page says:\n%s", expression, evaluate[string](b, `document.body.innerText`))
		}
	}
}

// TestPage: what kubectl tenure ui shows of a cluster, by mouse and by keyboard, in a real browser,
// and that it changes while one looks.
func TestPage(t *testing.T) {
	end, err := fleet.RunController(t.Context(), ships.DefaultConfig(), accounts.Controller, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	}()
	pool := fleet.Unique("page")
	create(t, &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: pool}, Spec: v1alpha1.IPPoolSpec{Ranges: []v1alpha1.Range{
		{CIDR: "10.20.0.0/16", Gateway: "10.20.0.1"}, {CIDR: "fd00:20::/64"},
	}}})
	create(t, &nad.NetworkAttachmentDefinition{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: pool}, Spec: nad.NetworkAttachmentDefinitionSpec{
		Config: fmt.Sprintf(`{"cniVersion":"1.1.0","name":%q,"type":"bridge","ipam":{"type":"tenure","pool":%[1]q}}`, pool),
	}})
	f := fleet.New(t, cp.Config())
	for _, name := range []string{pool + "-a", pool + "-b"} {
		n := f.Start(name)
		for i := range 2 {
			id := fmt.Sprintf("%s-%d", name, i)
			netns := filepath.Join(t.TempDir(), id)
			if err := os.WriteFile(netns, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			create(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: id}, Spec: corev1.PodSpec{NodeName: name, Containers: []corev1.Container{{Name: "c", Image: "none"}}}})
			if _, err := n.Insist(fleet.Interface{Network: pool, Sandbox: id, IfName: "net1", Namespace: "default", Pod: id, Netns: netns, IPAM: map[string]any{"type": "tenure", "pool": pool}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	create(t, &v1alpha1.IPReservation{ObjectMeta: metav1.ObjectMeta{Name: pool + "-printer"}, Spec: v1alpha1.IPReservationSpec{Pool: pool, Address: "10.20.0.77", For: "the printer"}})
	create(t, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: pool + "-waits", Annotations: map[string]string{kube.AnnotationNetworks: "no-such-network"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	})

	address := servePage(t)
	b := browser(t)
	b.do(chromedp.Navigate(address), chromedp.WaitVisible("#pools button"))
	b.do(chromedp.Click(fmt.Sprintf(`//ul[@id="pools"]//button[contains(., %q)]`, pool)))
	b.until(`view.map?.ranges[0].rows.length === 256 && kindAt(view.map.ranges[0].rows[0], 77)[0] === 'r'`)
	b.until(`view.map.ranges.flatMap((r) => r.rows).reduce((n, row) => n + (count(row).p || 0), 0) === 8`)

	// By keyboard: to an address, into it, and out.
	b.do(chromedp.Focus("#map"), chromedp.KeyEvent(kb.Home), chromedp.KeyEvent(kb.ArrowRight))
	b.until(`document.getElementById('cursor').textContent.startsWith('10.20.0.1: given to nobody')`)
	for range 76 {
		b.do(chromedp.KeyEvent(kb.ArrowRight))
	}
	b.do(chromedp.KeyEvent(kb.Enter))
	b.until(`document.getElementById('detail-text').textContent.includes('the printer')`)
	b.do(chromedp.Click("#past"))
	b.until(`document.getElementById('had').textContent.includes('nodes did not answer, and may have had it') && document.getElementById('had').textContent.includes('` + pool + `-a (')`)
	b.screenshot("map.png")
	late := evaluate[string](b, `lateNodes({ from: '2026-01-01T00:00:00Z', nodes: [{ name: 'old', begins: '2025-01-01T00:00:00Z' }, { name: 'new', begins: '2026-01-09T00:00:00Z' },
		{ name: 'unsure' }, { name: 'silent', silent: 'it is down' }] })`)
	if says(t, late, "new 1/", "2026", "unsure (not known since when)"); strings.Contains(late, "old") || strings.Contains(late, "silent") {
		t.Errorf("late are %q", late)
	}
	b.do(chromedp.Focus("#map"))
	b.do(chromedp.KeyEvent(kb.Escape))
	b.until(`document.getElementById('detail').hidden`)

	// The table has the same.
	b.do(chromedp.Click(`button[data-view="table"]`), chromedp.WaitVisible("#table button"))
	evaluate[any](b, `[...document.querySelectorAll('#table button')].find((b) => b.textContent === '10.20.0.0').click()`)
	b.until(`document.getElementById('table').textContent.includes('reservation ` + pool + `-printer')`)

	// It is live.
	b.do(chromedp.Click(`button[data-view="map"]`))
	began := time.Now()
	create(t, &v1alpha1.IPReservation{ObjectMeta: metav1.ObjectMeta{Name: pool + "-scanner"}, Spec: v1alpha1.IPReservationSpec{Pool: pool, Address: "10.20.0.78", For: "the scanner"}})
	b.until(`kindAt(view.map.ranges[0].rows[0], 78)[0] === 'r'`)
	t.Logf("a reservation that is made is on the page after %v", time.Since(began).Round(time.Millisecond))

	// By node, by what has an address.
	evaluate[any](b, `const f = document.getElementById('filters'); f.node.value = '`+pool+`-a'; f.node.dispatchEvent(new Event('change', { bubbles: true }))`)
	b.until(`view.map.ranges.flatMap((r) => r.rows).reduce((n, row) => n + (count(row).p || 0), 0) === 4`)

	milliseconds := evaluate[float64](b, `(() => { const began = performance.now(); for (let i = 0; i < 10; i++) drawMap(); return (performance.now() - began) / 10; })()`)
	t.Logf("65,536 addresses are drawn in %.1f ms", milliseconds)

	b.do(chromedp.Click(`button[data-view="waiting"]`))
	b.until(`document.getElementById('waiting').textContent.includes('` + pool + `-waits')`)
	evaluate[any](b, `[...document.querySelectorAll('#waiting button')].forEach((b) => b.click())`)
	b.until(`document.getElementById('waiting').textContent.includes('no-such-network')  && document.querySelector('#waiting li') !== null`)
	b.screenshot("waiting.png")
	b.do(chromedp.Click(`button[data-view="findings"]`))
	b.until(`document.querySelector('#found p') !== null`)
	says(t, evaluate[string](b, `document.getElementById('found').textContent`), "notes")
}

// TestPageTakesWatching: the role for who reads all shows all of the page. Who may list pools and
// not watch them is told so, and gets no page that stays as it is.
func TestPageTakesWatching(t *testing.T) {
	lists := fleet.Unique("lists")
	create(t, &rbac.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: lists}, Rules: []rbac.PolicyRule{
		{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"*"}, Verbs: []string{"get", "list"}},
	}})
	says(t, tenure(t, 1, "ui", bound(t, lists)), "list and watch pools", "forbidden", "watch")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, servePage(t, bound(t, "tenure-operator"))+"api/state", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var state struct {
		Hidden []string `json:"hidden"`
		Pools  []any    `json:"pools"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&state); err != nil || resp.StatusCode != http.StatusOK || len(state.Hidden) > 0 || state.Pools == nil {
		t.Errorf("%s: %+v, %v; want all, and nothing hidden", resp.Status, state, err)
	}
}

// screenshot writes what the browser shows below $TENURE_SCREENSHOTS, if that is set.
func (b tab) screenshot(name string) {
	b.Helper()
	dir := os.Getenv("TENURE_SCREENSHOTS")
	if dir == "" {
		return
	}
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), png, 0o644); err != nil {
		b.Fatal(err)
	}
}

// hostile is a page of another site, which knows the whole address of ours, secret included. It
// writes what it could get.
const hostile = `<!doctype html><title>waits</title><iframe id="frame" src="%[1]s"></iframe><img id="image" src="%[1]sicon.svg"><script>
const got = [];
addEventListener('error', () => {}, true);
(async () => {
  for (const mode of ['cors', 'no-cors']) {
    try { const r = await fetch('%[1]sapi/state', { mode }); const t = await r.text(); if (t) got.push(mode + ': ' + t); } catch {}
  }
  try { const r = await fetch('%[1]sapi/state', { method: 'POST', mode: 'no-cors' }); const t = await r.text(); if (t) got.push('post: ' + t); } catch {}
  await new Promise((done) => { const s = document.createElement('script'); s.src = '%[1]spage.js'; s.onload = () => { got.push('script'); done(); }; s.onerror = done; document.head.append(s); });
  await new Promise((done) => setTimeout(done, 500));
  try { if (document.getElementById('frame').contentDocument?.body?.innerText.includes('Pools')) got.push('frame'); } catch {}
  if (document.getElementById('image').naturalWidth > 0) got.push('image');
  const other = open('%[1]s');
  try { if (other && other.document.body.innerText) got.push('window'); } catch {}
  document.title = 'got ' + got.join('; ');
})();
</script>`

// TestHostilePage: a page of another site gets nothing of the page on localhost, though it knew the
// secret; nor does who comes by another name of this machine, without the secret, or to write.
func TestHostilePage(t *testing.T) {
	address := servePage(t)
	at, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	b := browser(t)
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, hostile, address) }))
	defer evil.Close()
	b.do(chromedp.Navigate(strings.Replace(evil.URL, "127.0.0.1", "evil.example", 1)))
	b.until(`document.title.startsWith('got')`)
	if title := evaluate[string](b, `document.title`); title != "got " && title != "got" {
		t.Errorf("a page of another site %s", title)
	}
	b.do(chromedp.Navigate("http://evil.example:" + at.Port() + at.Path))
	says(t, evaluate[string](b, `document.body.textContent`), "answers to 127.0.0.1 and localhost alone")
	for _, tt := range []struct {
		method, url, host, origin string
		want                      int
	}{
		{http.MethodGet, address, "", "", http.StatusOK},
		{http.MethodGet, address + "api/state", "", "", http.StatusOK},
		{http.MethodGet, "http://" + at.Host + "/", "", "", http.StatusNotFound},
		{http.MethodGet, "http://" + at.Host + "/api/state", "", "", http.StatusNotFound},
		{http.MethodGet, "http://" + at.Host + "/" + strings.Repeat("a", 22) + "/api/state", "", "", http.StatusNotFound},
		{http.MethodGet, address, "evil.example:" + at.Port(), "", http.StatusMisdirectedRequest},
		{http.MethodGet, address + "api/state", "", "http://evil.example", http.StatusForbidden},
		{http.MethodGet, address + "api/state", "", "null", http.StatusForbidden},
		{http.MethodPost, address + "api/state", "", "", http.StatusMethodNotAllowed},
		{http.MethodGet, address + "api/map?pool=none-of-this-name", "", "", http.StatusNotFound},
		{http.MethodGet, address + "api/address?address=printer", "", "", http.StatusBadRequest},
		{http.MethodGet, address + "../page.go", "", "", http.StatusNotFound},
	} {
		req, err := http.NewRequestWithContext(t.Context(), tt.method, tt.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if tt.host != "" {
			req.Host = tt.host
		}
		if tt.origin != "" {
			req.Header.Set("Origin", tt.origin)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != tt.want || err != nil {
			t.Errorf("%s %s, host %q, origin %q: %s %s; want %d", tt.method, tt.url, tt.host, tt.origin, resp.Status, body, tt.want)
		}
		if csp := resp.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") || !strings.Contains(csp, "frame-ancestors 'none'") || strings.Contains(csp, "unsafe") {
			t.Errorf("%s: policy %q", tt.url, csp)
		}
	}
}
