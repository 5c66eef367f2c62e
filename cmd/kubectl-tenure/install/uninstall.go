// Package install has the verbs about Tenure as it is installed: certificate makes the certificate
// of its webhooks, version says which versions run, and uninstall takes it off the nodes.
package install

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/api/vif"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/screen"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/state"
	"github.com/tenure-ipam/tenure/ipam/pause"
)

const uninstallHelp = `Takes Tenure off the nodes, and then says which command of Helm's or kubectl's removes the rest.

It refuses while a pod or a claim has an address, or while tenure-attach has given a pod further
networks, and names them. Else it ends the controller, and has each agent's pod remove from its
node the configuration of tenure-attach, the CNI plugins, and what agent and plugins keep there.
A node on which a pod has got an address meanwhile keeps all of this, and is named. When every
node is clean the pools are deleted, Nodes publish nothing of them any more, and PodNetworks and
PodNetworkAttachments lose the finalizer that would keep them.

If it is interrupted, run it again. To keep Tenure after all, delete the DaemonSet tenured in the
namespace tenure-system, and install Tenure again.

With --force it goes on in spite of addresses, and without nodes that do not answer. Pods keep
their interfaces, and nobody remembers their addresses. Pods that Multus attached cannot end,
because their end calls the plugin that is gone.`

// namespace is where Tenure runs.
const namespace = "tenure-system"

// Names of what runs.
const (
	agentName      = "tenured"
	controllerName = "tenure-controller"
)

// uninstall is a call of uninstall.
type uninstall struct {
	*session.Session
	force bool
	wait  time.Duration
}

// NewUninstall returns the verb uninstall.
func NewUninstall(s *session.Session) *cobra.Command {
	u := &uninstall{Session: s}
	c := &cobra.Command{
		Use: "uninstall", Short: "take Tenure off the nodes, if nobody has an address",
		Long: uninstallHelp, Args: session.None,
		RunE: func(c *cobra.Command, _ []string) error { return u.run(c.Context()) },
	}
	c.Flags().BoolVar(&u.force, "force", false, "also while pods and claims have addresses, and without nodes that do not answer")
	c.Flags().DurationVar(&u.wait, "timeout", 3*time.Minute, "how long to wait while no further node gets clean")
	return c
}

func (u *uninstall) run(ctx context.Context) error {
	if u.wait <= 0 {
		return session.Usagef("uninstall: --timeout is %v, must be positive", u.wait)
	}
	if err := u.Connect(); err != nil {
		return err
	}
	installed, err := u.installed(ctx)
	if err != nil {
		return err
	}
	var agents *appsv1.DaemonSet
	if installed {
		agents, err = u.takeOffNodes(ctx)
	} else {
		u.Screen().Line("Tenure is not installed: there is no namespace %s, or it is being deleted.", namespace)
		err = u.refuseLeftovers(ctx)
	}
	if err != nil {
		return err
	}
	if err := u.freePodNetworks(ctx); err != nil {
		return err
	}
	if err := u.freeNodes(ctx); err != nil {
		return err
	}
	if err := u.deletePools(ctx); err != nil {
		return err
	}
	if installed {
		if err := u.mark(ctx); err != nil {
			return err
		}
	}
	u.Screen().Line("%s", u.rest(agents))
	return nil
}

// mark tells the policy uninstall.tenure.dev that the nodes are clean: the rest may be deleted.
func (u *uninstall) mark(ctx context.Context) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+uninstallLabel+`":"true"}}}`))
	if err := u.Client.Patch(ctx, ns, patch); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("mark namespace %s as free of Tenure: %w", namespace, err)
	}
	return nil
}

// installed reports whether Tenure's namespace is there, and is to stay.
func (u *uninstall) installed(ctx context.Context) (bool, error) {
	var ns corev1.Namespace
	err := u.Client.Get(ctx, client.ObjectKey{Name: namespace}, &ns)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("read namespace %s: %w", namespace, err)
	}
	return err == nil && ns.DeletionTimestamp == nil, nil
}

// refuseLeftovers returns an error, unless that is forced, if the namespace went before its pools:
// somebody may have addresses of them, and the nodes are as they were.
func (u *uninstall) refuseLeftovers(ctx context.Context) error {
	if err := u.refuseInUse(ctx, true); err != nil {
		return err
	}
	pools, err := u.pools(ctx)
	if err != nil || len(pools) == 0 {
		return err
	}
	return u.refuseUnknown()
}

// takeOffNodes ends the programs and has the agents' pods clean the nodes. It returns the agents,
// nil if nobody knows what there is to clean, and that is forced.
func (u *uninstall) takeOffNodes(ctx context.Context) (*appsv1.DaemonSet, error) {
	agents, err := u.agents(ctx)
	if err != nil {
		return nil, err
	}
	switch {
	case agents == nil:
		err = u.refuseUnknown()
	case agents.Labels[uninstallLabel] == "":
		err = u.refuseInUse(ctx, attaches(agents))
	}
	if err != nil {
		return nil, err
	}
	if err := u.endController(ctx); err != nil || agents == nil {
		return nil, err
	}
	before := agents.DeepCopy()
	turn(agents, u.force)
	if err := u.Client.Patch(ctx, agents, client.MergeFrom(before)); err != nil {
		return nil, fmt.Errorf("have DaemonSet %s clean the nodes: %w", agentName, err)
	}
	if before.Labels[uninstallLabel] == "" {
		u.Screen().Line("ending %s", agentName)
	}
	return agents, u.clean(ctx)
}

// agents returns the agents' DaemonSet, nil if there is none.
func (u *uninstall) agents(ctx context.Context) (*appsv1.DaemonSet, error) {
	set := &appsv1.DaemonSet{}
	err := u.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: agentName}, set)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // there is none
	}
	if err != nil {
		return nil, fmt.Errorf("read DaemonSet %s: %w", agentName, err)
	}
	return set, nil
}

// refuseInUse returns an error while somebody has an address, unless that is forced.
func (u *uninstall) refuseInUse(ctx context.Context, attaches bool) error {
	held, err := u.held(ctx, attaches)
	if err != nil || len(held) == 0 {
		return err
	}
	to := u.Screen()
	to.Title("In use")
	for _, h := range held[:min(len(held), 20)] {
		to.Line("%s", h)
	}
	if more := len(held) - 20; more > 0 {
		to.Line("and %d more", more)
	}
	if u.force {
		return nil
	}
	to.Line("\nNothing was removed. Delete these pods and claims, and run it again. With --force it goes on: see --help for what becomes of them.\n" +
		"To have claims, pools and reservations again afterwards, save them first:\n\n" +
		"    kubectl tenure claims -A --save >claims.yaml\n    kubectl get ippools,ipreservations -o yaml >pools.yaml")
	return session.ErrNo
}

// refuseUnknown returns an error, unless that is forced: nothing tells where on the nodes Tenure
// is.
func (u *uninstall) refuseUnknown() error {
	to := u.Screen()
	to.Line("No agent is installed, whose image and directories are needed to clean the nodes.")
	if u.force {
		to.Line("They stay as they are.")
		return nil
	}
	to.Line("Nothing was removed. If Tenure was removed by other means, such as helm uninstall, install it again as it was,\n" +
		"and run this first. With --force the nodes stay as they are.")
	return session.ErrNo
}

// endController deletes the controller. Its pods end by themselves.
func (u *uninstall) endController(ctx context.Context) error {
	o := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: controllerName}}
	err := u.Client.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete %s: %w", controllerName, err)
	}
	u.Screen().Line("ending %s", controllerName)
	return nil
}

// clean waits until every node is clean. When no further node has got clean for the timeout,
// it names those that are not, and returns an error unless that is forced.
func (u *uninstall) clean(ctx context.Context) error {
	to := u.Screen()
	last, best := "", int32(-1)
	for better := time.Now(); ; {
		s, err := u.look(ctx)
		if err != nil {
			return err
		}
		if now := fmt.Sprintf("%d of %d nodes are clean", s.clean, s.nodes); s.seen && now != last {
			to.Line("%s", now)
			last = now
		}
		if s.seen && s.clean > best {
			best, better = s.clean, time.Now()
		}
		if s.done() {
			return nil
		}
		if time.Since(better) > u.wait {
			for _, node := range slices.Sorted(maps.Keys(s.obstacles)) {
				to.Line("not clean: %s: %s", node, s.obstacles[node])
			}
			if len(s.obstacles) == 0 {
				to.Line("not clean: %s, and no pod says why: see kubectl --namespace %s describe daemonset %s", screen.Number(int(s.nodes-s.clean), "node", "nodes"), namespace, agentName)
			}
			if !u.force {
				return fmt.Errorf("these nodes are not clean, and nothing new starts there. Run it again when the cause is gone, or with --force to do without them; "+
					"or delete DaemonSet %s and install Tenure again", agentName)
			}
			to.Line("\nWith the configuration of tenure-attach no new pod starts on such a node before it is clean. When it is back, install\n" +
				"Tenure again as it was and uninstall it.\n")
			return u.forget(ctx)
		}
		if !pause.For(ctx, time.Second) {
			return context.Cause(ctx)
		}
	}
}

// look reads how far the cleaning is.
func (u *uninstall) look(ctx context.Context) (cleaning, error) {
	agents, err := u.agents(ctx)
	if err != nil {
		return cleaning{}, err
	}
	if agents == nil {
		return cleaning{}, fmt.Errorf("DaemonSet %s was deleted meanwhile: somebody else ends the uninstallation", agentName)
	}
	pods, away, err := u.pods(ctx)
	if err != nil {
		return cleaning{}, err
	}
	return cleaningOf(agents, pods, away), nil
}

// pods returns the pods of Tenure's programs, and the names of the nodes that are not Ready.
func (u *uninstall) pods(ctx context.Context) (pods []corev1.Pod, away map[string]bool, err error) {
	var list corev1.PodList
	if err := u.Client.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{"app.kubernetes.io/part-of": "tenure"}); err != nil {
		return nil, nil, fmt.Errorf("list the pods of %s: %w", namespace, err)
	}
	var nodes corev1.NodeList
	if err := u.Client.List(ctx, &nodes); err != nil {
		return nil, nil, fmt.Errorf("list the nodes: %w", err)
	}
	away = map[string]bool{}
	for i := range nodes.Items {
		away[nodes.Items[i].Name] = !state.NodeReady(&nodes.Items[i])
	}
	return list.Items, away, nil
}

// forget deletes the agents, and without their kubelets' word the pods of nodes that do not
// answer: the namespace could not go while they are there.
func (u *uninstall) forget(ctx context.Context) error {
	agents := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: agentName}}
	if err := u.Client.Delete(ctx, agents, client.PropagationPolicy(metav1.DeletePropagationForeground)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete DaemonSet %s: %w", agentName, err)
	}
	for deadline := time.Now().Add(u.wait); ; {
		pods, away, err := u.pods(ctx)
		if err != nil {
			return err
		}
		for i := range pods {
			if away[nodeOf(&pods[i])] {
				if err := u.Client.Delete(ctx, &pods[i], client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
					return fmt.Errorf("delete pod %s: %w", pods[i].Name, err)
				}
			}
		}
		if set, err := u.agents(ctx); err != nil || set == nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the pods of %s have not ended within %v: see kubectl --namespace %s get pods -o wide", agentName, u.wait, namespace)
		}
		if !pause.For(ctx, time.Second) {
			return context.Cause(ctx)
		}
	}
}

// deletePools deletes the pools without the controller, which has ended: it takes their finalizers
// off itself, and says what the controller would have deleted in Neutron. A controller on a node
// that does not answer cannot put one on a deleted pool again.
func (u *uninstall) deletePools(ctx context.Context) error {
	pools, err := u.pools(ctx)
	if err != nil {
		return err
	}
	for i := range pools {
		p := &pools[i]
		if err := u.Client.Delete(ctx, p); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete pool %s: %w", p.Name, err)
		}
		before := client.MergeFrom(p.DeepCopy())
		controllerutil.RemoveFinalizer(p, v1alpha1.LeasesFinalizer)
		made := controllerutil.RemoveFinalizer(p, vif.FinalizerSubnet)
		if err := u.Client.Patch(ctx, p, before); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("take the finalizers from pool %s: %w", p.Name, err)
		}
		if made && p.Spec.Source != nil {
			ids, of := strings.Join(p.Spec.Source.Neutron.SubnetIDs, " "), p.Annotations[vif.AnnotationSubnetOf]
			u.Screen().Line("Neutron keeps subnet %s, which was made for definition %s. Delete it, and a network that was made for it:\n\n"+
				"    openstack subnet delete %[1]s\n    openstack network delete %[3]q", ids, of, "tenure "+of)
		}
	}
	return nil
}

// pools returns all pools: none, where nothing defines them.
func (u *uninstall) pools(ctx context.Context) ([]v1alpha1.IPPool, error) {
	pools, err := session.ListAll(ctx, u.Client, &v1alpha1.IPPoolList{}, session.PoolsIn)
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil, nil
	}
	return pools, err
}
