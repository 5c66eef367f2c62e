package who

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/screen"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/state"
	"github.com/tenure-ipam/tenure/ipam/history"
)

// A past is a question about an earlier time.
type past struct {
	at, since string // of the command line
	within    time.Duration

	addr     netip.Addr
	from, to time.Time
}

// check reads the command line.
func (p *past) check(now time.Time) (err error) {
	if p.within <= 0 {
		return session.Usagef("who: --timeout is %v, must be positive", p.within)
	}
	if p.from, p.to, err = history.ParsePeriod(p.at, p.since, now); err != nil {
		return session.Usagef("who: %v", err)
	}
	if p.from.After(now) {
		return session.Usagef("who: %q is yet to come: it is %s", cmp.Or(p.at, p.since), now.Format(time.RFC3339))
	}
	return nil
}

// PastView is what json and yaml show of an earlier time.
type PastView struct {
	Address netip.Addr `json:"address"`
	From    time.Time  `json:"from"`
	To      time.Time  `json:"to"`
	// Holders are sorted by when they had it.
	Holders []history.Span `json:"holders"`
	// Nodes are those that were asked, sorted by name.
	Nodes []NodeView `json:"nodes"`
}

// NodeView is what became of the question to one node.
type NodeView struct {
	Name string `json:"name"`
	// Begins is since when the node knows. Zero where it did not answer, or could not say.
	Begins time.Time `json:"begins,omitzero"`
	// Silent is why it did not answer; empty where it did.
	Silent string `json:"silent,omitempty"`
}

// answerWithin is how long a node has, if nobody says otherwise.
const answerWithin = 20 * time.Second

// parallel is how many nodes are asked at once.
const parallel = 16

// who asks every node.
func (p *past) who(ctx context.Context, s *session.Session, o session.Output) error {
	if err := s.Connect(); err != nil {
		return err
	}
	v, err := p.find(ctx, s, s.Stderr)
	if err != nil {
		return err
	}
	if o.Structured() {
		err = o.Encode(s, v)
	} else {
		err = v.write(ctx, s)
	}
	if err != nil {
		return err
	}
	if silent := v.silent(); len(silent) > 0 {
		return fmt.Errorf("%d of %s did not answer, and may have had it: %s", len(silent), screen.Number(len(v.Nodes), "node", "nodes"), screen.Some(silent, 20))
	}
	if len(v.Holders) == 0 {
		return session.ErrNo
	}
	return nil
}

// Past asks all agents who had an address since a time. The session is connected. It is an error if
// the user may not ask; of nodes that do not answer the view tells.
func Past(ctx context.Context, s *session.Session, addr netip.Addr, since time.Time) (PastView, error) {
	p := past{within: answerWithin, addr: addr, from: since, to: s.Now()}
	return p.find(ctx, s, io.Discard)
}

// find asks all agents, and shows on bar how many have answered.
func (p *past) find(ctx context.Context, s *session.Session, bar io.Writer) (PastView, error) {
	if err := mayExec(ctx, s, p.logs()); err != nil {
		return PastView{}, err
	}
	pods, nodes, err := agents(ctx, s)
	if err != nil {
		return PastView{}, err
	}
	return p.ask(ctx, s, bar, pods, nodes), nil
}

// logs is a command that finds the same in the agents' logs.
func (p *past) logs() string {
	return fmt.Sprintf(`kubectl -n %s logs -l app.kubernetes.io/name=%s -c %s --tail=-1 --prefix=false --max-log-requests=1000 | grep '"address":"%s"'`, namespace, agent, agent, p.addr)
}

// agents returns the agents' pods, and the nodes that have a registration.
func agents(ctx context.Context, s *session.Session) (pods []corev1.Pod, nodes []string, err error) {
	pods, err = session.ListAll(ctx, s.Client, &corev1.PodList{}, func(l *corev1.PodList) []corev1.Pod { return l.Items },
		client.InNamespace(namespace), client.MatchingLabels{"app.kubernetes.io/name": agent})
	if err != nil {
		return nil, nil, err
	}
	regs, err := state.Registrations(ctx, s, state.NewUnread(s.Client).Of("registration"))
	for name := range regs {
		nodes = append(nodes, string(name))
	}
	if session.Forbidden(err) {
		return pods, nil, nil
	}
	return pods, nodes, err
}

// ask asks the agents, and names as silent what has none that can be asked.
func (p *past) ask(ctx context.Context, s *session.Session, to io.Writer, pods []corev1.Pod, nodes []string) PastView {
	v := PastView{Address: p.addr, From: p.from.UTC(), To: p.to.UTC(), Holders: []history.Span{}, Nodes: []NodeView{}}
	var mu sync.Mutex
	bar := screen.NewBar(to, len(pods), "nodes")
	exec, err := newExecutor(s, p.within)
	var all errgroup.Group
	all.SetLimit(parallel)
	for i := range pods {
		all.Go(func() error {
			var a history.Answer
			err := err
			if err == nil {
				a, err = p.askNode(ctx, exec, &pods[i])
			}
			n := NodeView{Name: pods[i].Spec.NodeName, Begins: a.Begins}
			if err != nil {
				n.Silent = plain(err.Error())
			}
			mu.Lock()
			v.Holders, v.Nodes = append(v.Holders, a.Spans...), append(v.Nodes, n)
			mu.Unlock()
			bar.Step()
			return nil
		})
	}
	_ = all.Wait() // the view tells of those that failed
	bar.End()
	for _, name := range nodes {
		if !slices.ContainsFunc(v.Nodes, func(n NodeView) bool { return n.Name == name }) {
			v.Nodes = append(v.Nodes, NodeView{Name: name, Silent: "it has no agent's pod now"})
		}
	}
	slices.SortFunc(v.Nodes, func(a, b NodeView) int { return strings.Compare(a.Name, b.Name) })
	history.Sort(v.Holders)
	return v
}

// askNode asks the agent of a pod.
func (p *past) askNode(ctx context.Context, exec executor, pod *corev1.Pod) (history.Answer, error) {
	command := []string{"/" + agent, "history", p.addr.String()}
	if p.at != "" {
		command = append(command, "--at="+p.from.UTC().Format(time.RFC3339Nano))
	} else {
		command = append(command, "--since="+p.from.UTC().Format(time.RFC3339Nano))
	}
	for _, c := range pod.Spec.Containers {
		if c.Name == agent {
			command = append(command, c.Args...) // which say where its files are
		}
	}
	for _, c := range pod.Status.ContainerStatuses {
		if c.Name == agent && c.State.Running == nil {
			return history.Answer{}, fmt.Errorf("its agent does not run: pod %s", pod.Name)
		}
	}
	out, err := exec.run(ctx, pod.Name, command)
	if err != nil {
		return history.Answer{}, err
	}
	a, err := history.ReadAnswer(out)
	a.Spans = p.heed(pod.Spec.NodeName, a.Spans)
	return a, err
}

// heed returns what counts of a node's spans: those of the address, as its own. Root of a node can
// have it answer anything.
func (p *past) heed(node string, spans []history.Span) (own []history.Span) {
	for _, s := range spans {
		if s.Address != p.addr {
			continue
		}
		s.Node = node
		for _, text := range []*string{&s.Pool, &s.Network, &s.Namespace, &s.Pod, &s.PodUID, &s.Container, &s.Interface, &s.Claim, &s.ResourceClaim} {
			*text = plain(*text)
		}
		own = append(own, s)
	}
	return own
}

// plain returns text without what a terminal would not print but obey.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, text)
}

// silent returns the nodes that did not answer, with the reasons.
func (v PastView) silent() (names []string) {
	for _, n := range v.Nodes {
		if n.Silent != "" {
			names = append(names, n.Name+" ("+n.Silent+")")
		}
	}
	return names
}

// write writes the answer for people.
func (v PastView) write(ctx context.Context, s *session.Session) error {
	to := s.Screen()
	if len(v.Holders) == 0 {
		when := "at " + local(v.From)
		if v.From != v.To {
			when = "since " + local(v.From)
		}
		to.Line("%s: no node that has answered gave it to anybody %s", v.Address, when)
		v.writeBegins(to)
		return v.inNoPool(ctx, s)
	}
	t := screen.Table{Heads: []string{"FROM", "TO", "POD", "INTERFACE", "POOL", "CLAIM", "NODE"}}
	late := false
	for _, h := range v.Holders {
		end := "still"
		if !h.To.IsZero() {
			end = local(h.To)
		}
		if h.Late {
			end, late = "≤ "+end, true
		}
		pod := h.Pod
		if h.Namespace != "" {
			pod = h.Namespace + "/" + h.Pod
		}
		if h.ResourceClaim != "" {
			pod += " (ResourceClaim " + h.ResourceClaim + ")"
		}
		t.Row(screen.Plain(cmp.Or(local(h.From), "?"), end, pod, h.Interface, h.Pool, h.Claim, h.Node)...)
	}
	t.Write(to, true)
	if late {
		to.Line("≤: no agent saw the end; it was by then")
	}
	v.writeBegins(to)
	return nil
}

// writeBegins names the nodes that do not know of the whole time that was asked for.
func (v PastView) writeBegins(to screen.Screen) {
	var late []string
	for _, n := range v.Nodes {
		switch {
		case n.Silent == "" && n.Begins.IsZero():
			late = append(late, n.Name+" (not known since when)")
		case n.Begins.After(v.From):
			late = append(late, n.Name+" "+local(n.Begins))
		}
	}
	if len(late) > 0 {
		to.Line("not known is what was freed before the files of a node begin: %s", screen.Some(late, 10))
	}
}

// inNoPool says so if no pool has the address now.
func (v PastView) inNoPool(ctx context.Context, s *session.Session) error {
	all, err := session.ListAll(ctx, s.Client, &v1alpha1.IPPoolList{}, session.PoolsIn)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(all, func(p v1alpha1.IPPool) bool { return HasAddress(&p, v.Address) }) {
		s.Screen().Line("%s is in the ranges of no pool now. kubectl tenure pools -o wide shows the ranges", v.Address)
	}
	return nil
}

// local writes a time in the zone of who asks; "" for the zero time.
func local(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Truncate(time.Second).Format(time.RFC3339)
}
