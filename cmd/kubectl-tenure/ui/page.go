package ui

import (
	"cmp"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/check"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/pods"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/state"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/who"
)

//go:embed page
var files embed.FS

// page answers the requests of the page.
type page struct {
	*cluster

	mu   sync.Mutex
	maps map[mapKey]answered // guarded by mu, which nobody holds while he reads or draws
}

// mapKey is what a map is of.
type mapKey struct {
	pool string
	filter
}

// answered is a map as it was answered.
type answered struct {
	tag     string
	body    []byte
	changes int64
	at      time.Time
}

func newPage(c *cluster) http.Handler {
	p := &page{cluster: c, maps: map[mapKey]answered{}}
	static, err := fs.Sub(files, "page")
	if err != nil {
		panic(err) // the folder is compiled in
	}
	mux := http.NewServeMux()
	mux.Handle("/", http.FileServerFS(static))
	mux.HandleFunc("/api/state", within(watched, answer(p.state)))
	mux.HandleFunc("/api/map", within(watched, p.serveMap))
	mux.HandleFunc("/api/addresses", within(watched, answer(p.addresses)))
	mux.HandleFunc("/api/address", within(asked, answer(p.address)))
	mux.HandleFunc("/api/past", answer(p.past)) // each node has its time
	mux.HandleFunc("/api/why", within(asked, answer(p.why)))
	mux.HandleFunc("/api/findings", within(asked, answer(func(r *http.Request) (check.Report, error) { return check.Find(r.Context(), p.Session, check.Apart) })))
	return mux
}

// How long an answer may take: of what is watched, once it was listed, and of what the API server
// is asked for.
const (
	watched = 10 * time.Second
	asked   = time.Minute
)

// within has next answer in a time.
func within(d time.Duration, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), d)
		defer cancel()
		next(w, r.WithContext(ctx))
	}
}

// badRequest says what is wrong with a request.
type badRequest struct{ why string }

func (e badRequest) Error() string { return e.why }

// answer writes what of returns as JSON, or as text what is wrong.
func answer[T any](of func(*http.Request) (T, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := of(r)
		if err != nil {
			fail(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v) // who has gone needs no answer
	}
}

func fail(w http.ResponseWriter, err error) {
	code := http.StatusBadGateway
	if _, ok := errors.AsType[badRequest](err); ok {
		code = http.StatusBadRequest
	} else if apierrors.IsNotFound(err) {
		code = http.StatusNotFound
	} else if apierrors.IsForbidden(err) {
		code = http.StatusForbidden
	}
	http.Error(w, err.Error(), code)
}

// clusterView is what the page shows beside the map.
type clusterView struct {
	Cluster string `json:"cluster"`
	// Silent says since when the API server has not answered, and why; empty: it answers.
	Silent string     `json:"silent,omitempty"`
	Hidden []string   `json:"hidden,omitempty"`
	Pools  []poolView `json:"pools"`
	// Waiting are the pods that have not all networks that they select.
	Waiting []waitingPod `json:"waiting"`
}

// poolView is one line of the list of pools.
type poolView struct {
	Name     string               `json:"name"`
	Counts   *v1alpha1.PoolCounts `json:"counts,omitempty"`
	Pressure string               `json:"pressure,omitempty"`
	// Trouble are the conditions that say that something is wrong.
	Trouble []string `json:"trouble,omitempty"`
}

// waitingPod is a pod that waits for networks.
type waitingPod struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Node      string    `json:"node,omitempty"`
	Since     time.Time `json:"since"`
	Networks  []string  `json:"networks"`
}

// state lists pools and the pods that wait.
func (p *page) state(r *http.Request) (clusterView, error) {
	v := clusterView{Cluster: p.Rest.Host, Hidden: p.hidden, Pools: []poolView{}, Waiting: []waitingPod{}, Silent: p.silence()}
	var all v1alpha1.IPPoolList
	if err := p.cache.List(r.Context(), &all, client.UnsafeDisableDeepCopy); err != nil {
		return v, fmt.Errorf("list pools: %w", err)
	}
	for i := range all.Items {
		o := &all.Items[i]
		pool := poolView{Name: o.Name, Counts: o.Status.Counts, Pressure: string(o.Status.Pressure)}
		for _, c := range o.Status.Conditions {
			if (c.Status == metav1.ConditionTrue) != (c.Type == v1alpha1.PoolReady || c.Type == v1alpha1.PoolAdvertised) {
				pool.Trouble = append(pool.Trouble, fmt.Sprintf("%s is %s: %s", c.Type, c.Status, cmp.Or(c.Message, c.Reason)))
			}
		}
		v.Pools = append(v.Pools, pool)
	}
	slices.SortFunc(v.Pools, func(a, b poolView) int { return cmp.Compare(a.Name, b.Name) })
	if !p.sees(&corev1.Pod{}) {
		return v, nil
	}
	var list corev1.PodList
	if err := p.cache.List(r.Context(), &list, client.UnsafeDisableDeepCopy); err != nil {
		return v, fmt.Errorf("list pods: %w", err)
	}
	for i := range list.Items {
		o := &list.Items[i]
		if lacks := state.Waits(o); len(lacks) > 0 {
			v.Waiting = append(v.Waiting, waitingPod{Namespace: o.Namespace, Name: o.Name, Node: o.Spec.NodeName, Since: o.CreationTimestamp.Time, Networks: lacks})
		}
	}
	slices.SortFunc(v.Waiting, func(a, b waitingPod) int { return a.Since.Compare(b.Since) })
	return v, nil
}

// silence says since when the API server has not answered, "" if it does.
func (p *page) silence() string {
	p.cluster.mu.Lock()
	defer p.cluster.mu.Unlock()
	if p.silent == nil {
		return ""
	}
	return fmt.Sprintf("The API server has not answered for %s, and all here is of that time: %v", p.Age(p.answered), p.silent)
}

// pool reads the pool that a request names.
func (p *page) pool(r *http.Request) (*v1alpha1.IPPool, error) {
	name := r.URL.Query().Get("pool")
	if name == "" {
		return nil, badRequest{"pool is missing"}
	}
	var o v1alpha1.IPPool
	if err := p.cache.Get(r.Context(), client.ObjectKey{Name: name}, &o); err != nil {
		return nil, fmt.Errorf("read pool %s: %w", name, err)
	}
	return &o, nil
}

// redrawn is how long a map is answered again though nothing has changed: a node becomes silent by
// time alone.
const redrawn = 5 * time.Second

// mostMaps is how many maps are kept: one for each page that is open, and some to spare.
const mostMaps = 16

// serveMap answers with the map of a pool, or that the one that the page has is right still.
func (p *page) serveMap(w http.ResponseWriter, r *http.Request) {
	pool, err := p.pool(r)
	if err != nil {
		fail(w, err)
		return
	}
	q := r.URL.Query()
	key := mapKey{pool.Name, filter{namespace: q.Get("namespace"), node: q.Get("node")}}
	m, err := p.mapOf(r.Context(), key, pool)
	if err != nil {
		fail(w, err)
		return
	}
	w.Header().Set("ETag", m.tag)
	if r.Header.Get("If-None-Match") == m.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(m.body) // who has gone needs no answer
}

// mapOf draws a map, if the one that was drawn last may not be right any more.
func (p *page) mapOf(ctx context.Context, key mapKey, pool *v1alpha1.IPPool) (answered, error) {
	changes := p.changes.Load() // before it is read what they are
	p.mu.Lock()
	last, ok := p.maps[key]
	p.mu.Unlock()
	if ok && last.changes == changes && time.Since(last.at) < redrawn {
		return last, nil
	}
	f, err := p.facts(ctx, pool)
	if err != nil {
		return answered{}, err
	}
	m := answered{changes: changes, at: time.Now()}
	if m.body, err = json.Marshal(draw(f, key.filter)); err != nil {
		return answered{}, err
	}
	sum := sha256.Sum256(m.body)
	m.tag = `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.maps) >= mostMaps {
		clear(p.maps)
	}
	p.maps[key] = m
	return m, nil
}

// addressView is who has one address of a row, for the table.
type addressView struct {
	Address string `json:"address"`
	Cell    string `json:"cell"`
	Owner   string `json:"owner,omitempty"`
	Node    string `json:"node,omitempty"`
}

// addresses lists the addresses of a row that somebody has.
func (p *page) addresses(r *http.Request) ([]addressView, error) {
	pool, err := p.pool(r)
	if err != nil {
		return nil, err
	}
	first, err := addressIn(r, "first")
	if err != nil {
		return nil, err
	}
	f, err := p.facts(r.Context(), pool)
	if err != nil {
		return nil, err
	}
	return owners(f, rowOf(first)), nil
}

func addressIn(r *http.Request, name string) (netip.Addr, error) {
	a, err := netip.ParseAddr(r.URL.Query().Get(name))
	if err != nil || a.Zone() != "" {
		return a, badRequest{fmt.Sprintf("%s is %q, must be an IP address", name, r.URL.Query().Get(name))}
	}
	return a.Unmap(), nil
}

// addressText is what who says of an address.
type addressText struct {
	Address string `json:"address"`
	Text    string `json:"text"`
}

// address says who has an address, read live.
func (p *page) address(r *http.Request) (addressText, error) {
	a, err := addressIn(r, "address")
	if err != nil {
		return addressText{}, err
	}
	pool, err := p.pool(r)
	if err != nil {
		return addressText{}, err
	}
	v, ok, err := who.InPool(r.Context(), p.Session, pool, a)
	if err == nil && !ok {
		err = badRequest{fmt.Sprintf("%s is not in pool %s", a, pool.Name)}
	}
	return addressText{Address: a.String(), Text: v.Text()}, err
}

// remembered is how far back the page asks who had an address.
const remembered = 7 * 24 * time.Hour

// past says who had an address in the last week: it asks all agents.
func (p *page) past(r *http.Request) (who.PastView, error) {
	a, err := addressIn(r, "address")
	if err != nil {
		return who.PastView{}, err
	}
	return who.Past(r.Context(), p.Session, a, p.Now().Add(-remembered))
}

// why says why a pod waits, read live.
func (p *page) why(r *http.Request) ([]string, error) {
	key := client.ObjectKey{Namespace: r.URL.Query().Get("namespace"), Name: r.URL.Query().Get("name")}
	if key.Namespace == "" || key.Name == "" {
		return nil, badRequest{"namespace and name of the pod are missing"}
	}
	var pod corev1.Pod
	if err := p.Client.Get(r.Context(), key, &pod); err != nil {
		return nil, fmt.Errorf("read pod %s: %w", key, err)
	}
	why, err := pods.Why(r.Context(), p.Session, &pod)
	return append([]string{}, why...), err
}
