// Package release has the verb release-node: it puts on record that a node is off for good, so
// that the controller gives what the node holds to others.
package release

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/screen"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/state"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

const releaseHelp = `Gives what a node holds back to the cluster: its leases, and its uses of claims. It is for a
machine that is off for good, or will not be started before this has ended.

It shows what the node holds, and whom that serves. Then it puts your word on record, in
the only form that counts: the taint node.kubernetes.io/out-of-service of the Node. The
controller does the rest: it ends the node's term, so that an agent that comes back gives
out nothing of what was taken, and only then takes the leases. With the taint Kubernetes
also removes the node's pods, and detaches its volumes.

It refuses while the Node is Ready, or while the node's agent beats. If the machine still
runs, the addresses of its pods will be given to others: nothing can tell but you.

A Node that is gone needs no word, only time: its fence. But for pools with takeOver:
Confirmed, and where the fence is 0: then a Node of that name is made that has the taint,
and removed afterwards.`

// release is a call of release-node.
type release struct {
	*session.Session
	dry, yes bool
	wait     time.Duration
}

// New returns the verb release-node.
func New(s *session.Session) *cobra.Command {
	r := &release{Session: s}
	c := &cobra.Command{
		Use: "release-node NODE", Short: "give back what a node holds that is gone for good",
		Long: releaseHelp, Args: session.One("node"), ValidArgsFunction: s.OneNode,
		RunE: func(c *cobra.Command, args []string) error { return r.run(c.Context(), protocol.NodeName(args[0])) },
	}
	c.Flags().BoolVar(&r.dry, "dry-run", false, "say what would be done, and do nothing")
	c.Flags().BoolVarP(&r.yes, "yes", "y", false, "do not ask: the machine is off")
	c.Flags().DurationVar(&r.wait, "timeout", 2*time.Minute, "how long to wait for the controller; 0: not at all")
	return c
}

// A lost is what is known of a node that is to be released.
type lost struct {
	name   protocol.NodeName
	node   *corev1.Node // nil: there is none
	reg    *protocol.Registration
	beat   time.Time // of its last heartbeat, by the node's clock or the API server's, the later
	leases []protocol.Lease
	subs   []protocol.SubLease
	// confirmed are the pools that take the taint's word only and that the node's
	// leases and uses are of.
	confirmed []string
}

// deed is what a release does.
type deed uint8

// The deeds.
const (
	deedNone  deed = iota // there is nothing to release
	deedWait              // the controller has all that it needs
	deedTaint             // the Node gets the taint
	deedMake              // a Node is made that has it
)

func (r *release) run(ctx context.Context, name protocol.NodeName) error {
	if r.wait < 0 {
		return session.Usagef("release-node: --timeout is %v, must not be negative", r.wait)
	}
	if err := r.Connect(); err != nil {
		return err
	}
	l, err := r.look(ctx, name)
	if err != nil {
		return err
	}
	to := r.Screen()
	l.write(r.Session, to)
	do, refusal := l.decide(r.Now())
	switch {
	case refusal != "":
		to.Line("\nNode %s is not released: %s", name, refusal)
		return session.ErrNo
	case r.dry:
		to.Line("\nDry run: %s", do.text(name))
		if l.made() != nil {
			to.Line("The Node %s that an earlier release-node has made would be removed.", name)
		}
		return nil
	case do == deedTaint, do == deedMake:
		if err := r.confirm(ctx, to, name); err != nil {
			return err
		}
		if l, err = r.lookAgain(ctx, to, l, do); err != nil {
			return err
		}
	}
	return r.carryOut(ctx, to, l, do)
}

// lookAgain reads the node once more after a prompt: the user may have waited for long, and the
// machine may run by now although its Node does not say so. It returns what it reads if that is
// what was shown.
func (r *release) lookAgain(ctx context.Context, to screen.Screen, shown *lost, do deed) (*lost, error) {
	l, err := r.look(ctx, shown.name)
	if err != nil {
		return nil, err
	}
	again, refusal := l.decide(r.Now())
	switch {
	case refusal != "":
		to.Line("\nNode %s is not released: %s", l.name, refusal)
		return nil, session.ErrNo
	case again != do || !sameBeat(l.reg, shown.reg):
		to.Line("\nNode %s is not released: it has changed since it was shown. Call release-node again", l.name)
		return nil, session.ErrNo
	}
	return l, nil
}

// sameBeat reports whether two looks at a registration have seen the same heartbeat of the same
// agent. Recalls change other parts of a registration.
func sameBeat(a, b *protocol.Registration) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.UID == b.UID && a.Store == b.Store && a.Term == b.Term && a.Beat.Equal(b.Beat)
}

// text says what would be done.
func (d deed) text(name protocol.NodeName) string {
	switch d {
	case deedTaint:
		return fmt.Sprintf("Node %s would get the taint %s, and the controller would take over what it holds.", name, corev1.TaintNodeOutOfService)
	case deedMake:
		return fmt.Sprintf("a Node %s would be made that has the taint %s, and be removed when the controller has taken over what is left.", name, corev1.TaintNodeOutOfService)
	case deedNone:
		return "there is nothing to release."
	case deedWait:
	}
	return "nothing would be written: the controller takes over what is left."
}

// look reads live all that is known of a node.
func (r *release) look(ctx context.Context, name protocol.NodeName) (*lost, error) {
	l := &lost{name: name}
	var node corev1.Node
	switch err := r.Client.Get(ctx, client.ObjectKey{Name: string(name)}, &node); {
	case err == nil:
		l.node = &node
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("read node %s: %w", name, err)
	}
	var err error
	if l.reg, l.beat, err = state.Registration(ctx, r.Session, name); err != nil {
		return nil, err
	}
	if l.leases, err = r.API.LeasesOfNode(ctx, name); err != nil {
		return nil, err
	}
	if l.subs, err = r.API.SubLeasesOfNode(ctx, name); err != nil {
		return nil, err
	}
	return l, r.readConfirmed(ctx, l)
}

// made returns the Node that a release-node has made to carry the taint, nil if the Node
// is not one, or a kubelet has taken it for its own.
func (l *lost) made() *corev1.Node {
	if l.node == nil || l.node.Annotations[annotationMade] == "" || l.node.Status.NodeInfo.KubeletVersion != "" {
		return nil
	}
	return l.node
}

// gone reports whether the Node is gone that the agent was registered for: there is none, or it was
// made again, and may be another machine's.
func (l *lost) gone() bool {
	return l.node == nil || l.reg != nil && l.reg.NodeUID != "" && l.reg.NodeUID != protocol.UID(l.node.UID)
}

// readConfirmed finds the pools that take the taint's word only and of which the node
// has leases, or uses of claims.
func (r *release) readConfirmed(ctx context.Context, l *lost) error {
	pools, err := r.API.Pools(ctx)
	if err != nil {
		return err
	}
	for _, p := range pools {
		if !p.Confirmed {
			continue
		}
		of := slices.ContainsFunc(l.leases, func(lease protocol.Lease) bool { return string(lease.Pool) == p.Name })
		if !of && len(l.subs) > 0 {
			leases, err := r.API.LeasesOfPool(ctx, protocol.PoolName(p.Name))
			if err != nil {
				return err
			}
			of = slices.ContainsFunc(leases, l.serves)
		}
		if of {
			l.confirmed = append(l.confirmed, p.Name)
		}
	}
	return nil
}

// serves reports whether a lease grants something that the node uses.
func (l *lost) serves(lease protocol.Lease) bool {
	return slices.ContainsFunc(l.subs, func(s protocol.SubLease) bool {
		return len(lease.GrantsOf(s.UID)) > 0 || s.Use != nil && len(lease.GrantsOf(s.Use.Claim.UID)) > 0
	})
}

// decide says what is to be done, or why nothing is.
func (l *lost) decide(now time.Time) (do deed, refusal string) {
	quiet := now.Sub(l.beat)
	registered := l.reg != nil && !l.reg.Ended()
	off := l.node != nil && kube.NodeOf(l.node).Off
	switch {
	case l.node != nil && state.NodeReady(l.node):
		return 0, "the Node is Ready: its kubelet runs. Stop the machine first"
	case registered && quiet < beats(l.reg.Fence):
		return 0, fmt.Sprintf("its agent beats: the last heartbeat was %s ago, and one comes every %s. If the machine is off, try again in %s",
			duration.HumanDuration(max(0, quiet)), duration.HumanDuration(beats(l.reg.Fence)-time.Minute), duration.HumanDuration(beats(l.reg.Fence)-quiet))
	case len(l.leases)+len(l.subs) == 0 && l.node == nil && l.reg == nil:
		return 0, "no Node, registration, lease or sub-lease says anything of it. If the name is right it was released before; kubectl tenure leases shows who holds what"
	case len(l.leases)+len(l.subs) == 0:
		return deedNone, ""
	case l.reg == nil:
		return 0, "it has no registration, so that nobody can end its term. When nothing of that machine runs any more, delete by hand what is listed, " +
			"each after kubectl annotate KIND NAME tenure.dev/deletion=confirmed: by kubectl delete ipsublease NAME, then kubectl delete iplease NAME. " +
			"A lease with grants is still needed by these: leave it"
	case !l.gone() && off:
		return deedWait, ""
	case !l.gone():
		return deedTaint, ""
	case registered && l.reg.Fence > 0 && quiet < l.reg.Fence+time.Minute:
		return 0, fmt.Sprintf("the Node is gone%s, and the agent may still give out addresses: its fence of %v has not passed since its last heartbeat. Try again in %s",
			map[bool]string{true: " that its agent was registered for, and was made again"}[l.node != nil], l.reg.Fence, duration.HumanDuration(l.reg.Fence+time.Minute-quiet))
	case off, len(l.confirmed) == 0 && l.reg.Fence > 0:
		return deedWait, ""
	case l.node != nil: // it was made again, and nothing else can carry the word
		return deedTaint, ""
	}
	return deedMake, ""
}

// beats returns within what time after a heartbeat an agent that lives has sent the next one: the
// time between two of them by this fence, and a minute for it to arrive.
func beats(fence time.Duration) time.Duration {
	every := time.Minute
	if fence > 0 {
		every = fence / 4
	}
	return every + time.Minute
}

// write says what the node holds, and whom that serves.
func (l *lost) write(s *session.Session, to screen.Screen) {
	found := "there is none"
	switch {
	case l.made() != nil:
		found = "made by an earlier release-node"
	case l.node != nil && state.NodeReady(l.node):
		found = "Ready"
	case l.node != nil:
		found = "not Ready"
	}
	to.Fact("Node", screen.Plain(string(l.name) + ", " + found)[0])
	switch {
	case l.reg == nil:
		to.Fact("Registration", screen.Plain("there is none")[0])
	case l.reg.Ended():
		to.Fact("Registration", screen.Plain(fmt.Sprintf("its term was ended; now %d", l.reg.Term))[0])
	default:
		to.Fact("Registration", screen.Plain(fmt.Sprintf("term %d, last heartbeat %s ago, fence %v", l.reg.Term, s.Age(l.beat), l.reg.Fence))[0])
	}
	to.Fact("Holds", screen.Plain(fmt.Sprintf("leases %d, sub-leases %d", len(l.leases), len(l.subs)))[0])
	if len(l.confirmed) > 0 {
		to.Fact("", screen.Plain("of pools with takeOver: Confirmed: " + strings.Join(l.confirmed, ", "))[0])
	}
	if len(l.leases)+len(l.subs) == 0 {
		return
	}
	to.Title("Whom it serves")
	t := screen.Table{Heads: []string{"POD", "INTERFACE", "ADDRESS", "BY"}}
	for i := range l.leases {
		lease := &l.leases[i]
		if len(lease.Published.Allocations) == 0 {
			t.Row(screen.Plain("", "", lease.Block.String(), "iplease "+lease.Name)...)
		}
		for _, text := range lease.Published.Allocations {
			if addr, u, ok := state.ParseAllocation(text); ok {
				t.Row(screen.Plain(u.Namespace+"/"+u.Pod, u.Interface, addr.String(), "iplease "+lease.Name)...)
			}
		}
	}
	for _, sub := range l.subs {
		switch {
		case sub.Use != nil:
			t.Row(screen.Plain(sub.Use.Pod.String(), sub.Use.Interface, "claim "+sub.Use.Claim.String(), "ipsublease "+sub.Name)...)
		case sub.Request != nil:
			var addrs []string
			for _, g := range sub.Granted {
				addrs = append(addrs, g.Addr.String())
			}
			t.Row(screen.Plain(sub.Request.Pod.String(), sub.Request.Interface, strings.Join(addrs, ","), "ipsublease "+sub.Name)...)
		}
	}
	t.Write(to, false)
}

// confirm asks whether the machine is off.
func (r *release) confirm(ctx context.Context, to screen.Screen, name protocol.NodeName) error {
	if r.yes {
		return nil
	}
	f, ok := r.Stdin.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return session.Usagef("release-node: there is nobody to ask whether the machine is off: say so by --yes")
	}
	to.Line("\nYou vouch that the machine of node %s is off, and that none of its pods runs. Kubernetes will\nremove its pods. If it still runs, addresses will be given twice.", name)
	fmt.Fprintf(r.Stdout, "Write the node's name to go on: ")
	answered := make(chan bool, 1)
	go func() { // a read of a terminal cannot be called off
		answer, err := bufio.NewReader(r.Stdin).ReadString('\n')
		answered <- err == nil && strings.TrimSpace(answer) == string(name)
	}()
	select {
	case <-ctx.Done():
		to.Line("")
	case yes := <-answered:
		if yes {
			return nil
		}
	}
	to.Line("Nothing was done.")
	return session.ErrNo
}
