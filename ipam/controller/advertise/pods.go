package advertise

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// quiet is how long after a pod was bound to a node less is not published there: others may
	// be on their way to it.
	quiet = 5 * time.Second
	// stale is how long after a pod's end its addresses may still count as used: agents tell
	// twice a minute what is used.
	stale = 90 * time.Second
)

// A pod is what is remembered of one that asks for addresses.
type pod struct {
	node        string // where it is bound; empty: nowhere yet
	asks        map[string]int64
	claims      []string
	tolerations []corev1.Toleration
	tolerates   string // tolerations, as text
}

// Pods remembers the pods that ask for addresses, and nothing of others. The zero Pods has seen
// none; it may be used concurrently.
type Pods struct {
	// Changed is called with each pool of which a pod asks something else than before.
	Changed func(pool string)
	// Now is the clock.
	Now func() time.Time

	mu     sync.Mutex
	synced bool                                     // guarded by mu: all pods have been seen once
	pods   map[types.NamespacedName]pod             // guarded by mu
	of     map[string]map[types.NamespacedName]bool // guarded by mu: pools' pods
	bound  map[place]time.Time                      // guarded by mu: when a pod was last bound there
	gone   map[string][]ended                       // guarded by mu: by pool, the oldest first
}

// place is one pool on one node.
type place struct{ pool, node string }

// ended is what a pod had asked for that is gone.
type ended struct {
	node string
	n    int64
	at   time.Time
}

// read returns what is to be remembered of a pod; not ok is nothing.
func read(o *corev1.Pod) (p pod, ok bool) {
	if o.Status.Phase == corev1.PodSucceeded || o.Status.Phase == corev1.PodFailed {
		return pod{}, false
	}
	asks := requestsOf(o)
	if len(asks) == 0 {
		return pod{}, false
	}
	tolerations := tolerationsOf(o)
	return pod{node: o.Spec.NodeName, asks: asks, claims: claimsOf(o), tolerations: tolerations, tolerates: fmt.Sprint(tolerations)}, true
}

// Add implements [cache.ReflectorStore].
func (p *Pods) Add(o any) error { return p.Update(o) }

// Update implements [cache.ReflectorStore].
func (p *Pods) Update(o any) error {
	is, ok := o.(*corev1.Pod)
	if !ok {
		return fmt.Errorf("a %T is no pod", o)
	}
	changed := map[string]bool{}
	p.mu.Lock()
	if what, ok := read(is); ok {
		p.put(client.ObjectKeyFromObject(is), what, true, changed)
	} else {
		p.drop(client.ObjectKeyFromObject(is), changed)
	}
	p.mu.Unlock()
	p.tell(changed)
	return nil
}

// Delete implements [cache.ReflectorStore].
func (p *Pods) Delete(o any) error {
	is, ok := o.(*corev1.Pod)
	if !ok {
		return fmt.Errorf("a %T is no pod", o)
	}
	changed := map[string]bool{}
	p.mu.Lock()
	p.drop(client.ObjectKeyFromObject(is), changed)
	p.mu.Unlock()
	p.tell(changed)
	return nil
}

// Replace implements [cache.ReflectorStore].
func (p *Pods) Replace(all []any, _ string) error {
	there := map[types.NamespacedName]bool{}
	changed := map[string]bool{}
	p.mu.Lock()
	for _, o := range all {
		is, ok := o.(*corev1.Pod)
		if !ok {
			continue // the client makes no others
		}
		if what, ok := read(is); ok {
			key := client.ObjectKeyFromObject(is)
			there[key] = true
			p.put(key, what, p.synced, changed)
		}
	}
	for key := range p.pods {
		if !there[key] {
			p.drop(key, changed)
		}
	}
	p.synced = true
	p.mu.Unlock()
	p.tell(changed)
	return nil
}

// Resync implements [cache.ReflectorStore].
func (*Pods) Resync() error { return nil }

// put remembers a pod. live says that what it shows may have happened just now. p.mu must be held.
func (p *Pods) put(key types.NamespacedName, what pod, live bool, changed map[string]bool) {
	if p.pods == nil {
		p.pods, p.of = map[types.NamespacedName]pod{}, map[string]map[types.NamespacedName]bool{}
		p.bound, p.gone = map[place]time.Time{}, map[string][]ended{}
	}
	// Another pod of that name, if the end of the first was missed: none moves, or asks for more.
	if was := p.pods[key]; was.node != "" && was.node != what.node || !maps.Equal(was.asks, what.asks) {
		p.drop(key, changed)
	}
	was, known := p.pods[key]
	p.pods[key] = what
	for pool := range what.asks {
		if p.of[pool] == nil {
			p.of[pool] = map[types.NamespacedName]bool{}
		}
		p.of[pool][key] = true
		if known && was.node == what.node && slices.Equal(was.claims, what.claims) {
			continue
		}
		changed[pool] = true
		if live && what.node != "" && was.node != what.node {
			p.bound[place{pool, what.node}] = p.Now()
		}
	}
}

// drop forgets a pod. p.mu must be held.
func (p *Pods) drop(key types.NamespacedName, changed map[string]bool) {
	was := p.pods[key]
	delete(p.pods, key)
	for pool, n := range was.asks {
		changed[pool] = true
		if delete(p.of[pool], key); len(p.of[pool]) == 0 {
			delete(p.of, pool)
		}
		if was.node != "" {
			p.gone[pool] = append(p.recent(pool), ended{was.node, n, p.Now()})
		}
	}
}

func (p *Pods) tell(changed map[string]bool) {
	for pool := range changed {
		p.Changed(pool)
	}
}

// asked is what pods ask of one pool.
type asked struct {
	byNode map[string]int64 // by pods that are bound there
	// plain are those of byNode of which no claim has the address already, and ended what pods
	// had asked for that went a moment ago.
	plain, ended map[string]int64
	// waiting is what claims already have for pods that are bound nowhere yet.
	waiting     int64
	busy        map[string]bool
	tolerations map[string][]corev1.Toleration // by their text: few pods have others than most
}

// asked returns what pods ask of a pool, where these claims have addresses. Before all pods have
// been seen once it is not ok.
func (p *Pods) asked(pool string, claims map[types.NamespacedName]bool) (a asked, ok bool) {
	has := newClaimed(claims)
	a = asked{byNode: map[string]int64{}, plain: map[string]int64{}, ended: map[string]int64{}, busy: map[string]bool{}, tolerations: map[string][]corev1.Toleration{}}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.synced {
		return a, false
	}
	now := p.Now()
	for key := range p.of[pool] {
		o := p.pods[key]
		n := o.asks[pool]
		covered := min(has.count(key, o.claims), n)
		if o.node == "" {
			a.waiting += covered
		} else {
			a.byNode[o.node] += n
			a.plain[o.node] += n - covered
			a.busy[o.node] = now.Sub(p.bound[place{pool, o.node}]) < quiet
		}
		a.tolerations[o.tolerates] = o.tolerations
	}
	for _, e := range p.recent(pool) {
		a.ended[e.node] += e.n
	}
	maps.DeleteFunc(p.bound, func(_ place, at time.Time) bool { return now.Sub(at) >= quiet })
	return a, true
}

// recent forgets the pods of a pool that went long ago, and returns the others. p.mu must be held.
func (p *Pods) recent(pool string) []ended {
	now := p.Now()
	left := slices.DeleteFunc(p.gone[pool], func(e ended) bool { return now.Sub(e.at) >= stale })
	if len(left) == 0 {
		delete(p.gone, pool)
		return nil
	}
	p.gone[pool] = left
	return left
}

// claimed are the claims that have an address, and how many have a name that begins with that of a
// pod and a dot: so the claims of StatefulSets are named, and of other pods by their name.
type claimed struct {
	all    map[types.NamespacedName]bool
	byPods map[types.NamespacedName]int64
}

func newClaimed(all map[types.NamespacedName]bool) claimed {
	c := claimed{all, map[types.NamespacedName]int64{}}
	for claim := range all {
		for i, r := range claim.Name {
			if r == '.' {
				c.byPods[types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name[:i]}]++
			}
		}
	}
	return c
}

// count returns how many claims of a pod have an address. names are those that the pod names.
func (c claimed) count(pod types.NamespacedName, names []string) int64 {
	n := c.byPods[pod]
	for _, name := range names {
		if c.all[types.NamespacedName{Namespace: pod.Namespace, Name: name}] && !strings.HasPrefix(name, pod.Name+".") {
			n++
		}
	}
	return n
}
