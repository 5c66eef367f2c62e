package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
)

// uninstall removes Tenure: first the pools, while programs run that can give their
// leases back, then the programs, then what is on the nodes, at last the rest. The
// definitions of others stay. While something has an address, or a network of
// tenure-attach's, it says what and removes nothing, unless it is forced to. One that was
// broken off is gone on with by running it again.
func (c *cluster) uninstall(ctx context.Context, o options) error {
	o.attach, o.registry = true, "any" // what is not there need not be, whatever its image
	rest, err := o.render(ctx)         // it may fail, and nothing is removed yet
	if err != nil {
		return err
	}
	r, err := c.record(ctx)
	if err != nil {
		return err
	}
	if _, err := c.away(ctx); err != nil { // the time of nodes that do not answer begins
		return err
	}
	there := true
	if r.cleaner == nil {
		if there, err = c.installed(ctx); err != nil {
			return err
		}
		if err := c.refuseUnknown(there, o.force); err != nil {
			return err
		}
	}
	if err := c.settle(ctx, r.attaches(), o.force); err != nil {
		return err
	}
	if !o.force {
		if err := c.deletePools(ctx); err != nil {
			return err
		}
	}
	if r.cleaner != nil {
		if err := c.keep(ctx, r); err != nil {
			return err
		}
	}
	// The controller makes implicit pools again as long as it runs.
	if err := c.deleteProgram(ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: controllerName}}, o.force); err != nil {
		return err
	}
	if err := c.dropPools(ctx, o.force); err != nil {
		return err
	}
	if err := c.deleteProgram(ctx, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: agentName}}, o.force); err != nil {
		return err
	}
	if r.cleaner != nil && !r.cleaned {
		if r.cleaned, err = c.cleanNodes(ctx, r.cleaner, o.force); err != nil {
			return err
		}
		if err := c.keep(ctx, r); err != nil {
			return err
		}
	}
	if err := c.deleteRest(ctx, rest); err != nil {
		return err
	}
	switch {
	case !there:
		c.say("Tenure is not installed here")
	case r.cleaner == nil:
		c.say("Tenure is removed from the cluster, and not from the nodes")
	case !r.cleaned:
		c.say("Tenure is removed from the cluster, and not from the nodes named above. %s", r.later())
	default:
		c.say("Tenure is removed. NetworkAttachmentDefinitions and IPAMClaims, and what defines them, are as they were")
	}
	return nil
}

// refuseUnknown returns an error where Tenure has been installed, and nothing says where
// on the nodes it is: they would stay as they are, and with tenure-attach's configuration
// no new pod would start.
func (c *cluster) refuseUnknown(installed, force bool) error {
	if !installed {
		return nil
	}
	const unknown = "no agent is installed, by whose image and directories nodes are cleaned"
	if force {
		c.say("%s: they stay as they are", unknown)
		return nil
	}
	return fmt.Errorf("%s; nothing was removed. If it has been removed by other means, such as helm uninstall, install it again as it was, and then uninstall it. "+
		"FORCE=1 removes the rest, and leaves on every node what is there: the plugins tenure and tenure-attach, the configuration 00-tenure.conflist, /var/lib/tenure", unknown)
}

// settle returns when nothing has an address any more, or at once where that is forced.
// Leases that nothing uses are waited for: their nodes give them back within a minute.
func (c *cluster) settle(ctx context.Context, attaches, force bool) error {
	deadline := time.Now().Add(c.timeout)
	for told := false; ; told = true {
		held, idle, err := c.holders(ctx, attaches)
		if err != nil {
			return err
		}
		if len(held) > 0 && !force {
			return fmt.Errorf("in use, nothing was removed:\n  %s\nDelete those first. FORCE=1 removes Tenure all the same: such pods keep their interfaces, and nobody "+
				"remembers their addresses; where Multus attached them, they cannot end, as the plugin is gone that their end calls", strings.Join(abridged(held), "\n  "))
		}
		if force || len(idle) == 0 {
			for _, h := range abridged(held) {
				c.say("still in use: %s", h)
			}
			return nil
		}
		if !told {
			c.say("waiting until the leases are given back that nothing uses, %d; it takes a minute", len(idle))
		}
		if time.Now().After(deadline) {
			return errNotGivenBack(idle, c.timeout)
		}
		if err := pause(ctx, every); err != nil {
			return err
		}
	}
}

// errNotGivenBack names the leases, and what may hold them up. Of a store that was lost the
// pods of its time do, the controller's among them, which nobody counts as in use.
func errNotGivenBack(leases []string, within time.Duration) error {
	return fmt.Errorf("not given back within %v, nothing was removed:\n  %s\nSee whether the agents of those nodes run. What is StoreFrozen in kubectl tenure check waits until every pod has ended that "+
		"ran on its node when its store was lost: drain and reboot the node. FORCE=1 does without", within, strings.Join(abridged(leases), "\n  "))
}

// abridged returns the first lines, and how many more there are.
func abridged(lines []string) []string {
	const most = 20
	if len(lines) <= most {
		return lines
	}
	return append(slices.Clone(lines[:most]), fmt.Sprintf("and %d more", len(lines)-most))
}

// deletePools deletes the pools that there are, and waits until they are gone: until the
// controller, if there is one that is not ending, has seen their leases given back. Others
// that are made meanwhile it leaves: the controller makes an implicit pool again, as long
// as a definition describes it.
func (c *cluster) deletePools(ctx context.Context) error {
	var controller appsv1.Deployment
	switch err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: controllerName}, &controller); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("ask for the controller: %w", err)
	case controller.DeletionTimestamp != nil:
		return nil
	}
	pools, err := c.pools(ctx)
	if err != nil {
		return err
	}
	first := map[types.UID]bool{}
	for i := range pools {
		p := &pools[i]
		first[p.UID] = true
		c.say("deleting pool %s", p.Name)
		if err := c.Delete(ctx, p, client.Preconditions{UID: &p.UID}); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			return fmt.Errorf("delete pool %s: %w", p.Name, err)
		}
	}
	for deadline := time.Now().Add(c.timeout); ; {
		pools, err := c.pools(ctx)
		if err != nil {
			return err
		}
		var left []string
		for _, p := range pools {
			if first[p.UID] {
				left = append(left, p.Name)
			}
		}
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("pools are still there after %v: %s: see their conditions, and whether the controller runs; FORCE=1 does without", c.timeout, strings.Join(left, ", "))
		}
		if err := pause(ctx, every); err != nil {
			return err
		}
	}
}

// implicitLabel, with the value "true", marks the pools that the controller makes.
const implicitLabel = "tenure.dev/implicit"

// dropPools deletes what pools are left, when the controller has ended that could: it
// takes their finalizer away itself. It does so with implicit pools that have no lease,
// and with all where that is forced.
func (c *cluster) dropPools(ctx context.Context, force bool) error {
	for deadline := time.Now().Add(c.timeout); ; {
		pools, err := c.pools(ctx)
		if err != nil || len(pools) == 0 {
			return err
		}
		var left []string
		for i := range pools {
			what, err := c.dropPool(ctx, &pools[i], force)
			if err != nil {
				return err
			}
			left = append(left, what)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("pools are still there after %v: %s; FORCE=1 does without", c.timeout, strings.Join(left, ", "))
		}
		if err := pause(ctx, every); err != nil {
			return err
		}
	}
}

// dropPool deletes a pool and takes its finalizer away, unless it has a lease, and returns
// what is to be gone then. Leases are looked for after the pool has been deleted: an agent
// that reads it later acquires none.
func (c *cluster) dropPool(ctx context.Context, p *v1alpha1.IPPool, force bool) (what string, err error) {
	if !force && p.Labels[implicitLabel] != "true" {
		return "", fmt.Errorf("pool %s is there, and no controller any more that lets go of it: install Tenure again, and then uninstall it; FORCE=1 goes on without", p.Name)
	}
	if err := c.Delete(ctx, p); client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("delete pool %s: %w", p.Name, err)
	}
	if p.DeletionTimestamp == nil {
		c.say("deleting pool %s", p.Name)
	}
	if !force {
		var leases v1alpha1.IPLeaseList
		if err := c.List(ctx, &leases); err != nil {
			return "", fmt.Errorf("list the leases of pool %s: %w", p.Name, err)
		}
		for _, l := range leases.Items {
			if l.Spec.Pool == p.Name {
				return fmt.Sprintf("%s has lease %s", p.Name, l.Name), nil
			}
		}
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	if err := c.Patch(ctx, p, patch); client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("take the finalizer from pool %s: %w", p.Name, err)
	}
	return p.Name, nil
}

// pools returns the pools; none where they are not defined.
func (c *cluster) pools(ctx context.Context) ([]v1alpha1.IPPool, error) {
	var pools v1alpha1.IPPoolList
	if err := c.List(ctx, &pools); meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("list the pools: %w", err)
	}
	return pools.Items, nil
}

// deleteProgram deletes a program, and waits until its pods are gone: an agent that still
// runs has its store open. By force, those of nodes that do not answer are forgotten.
func (c *cluster) deleteProgram(ctx context.Context, o client.Object, force bool) error {
	err := c.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationForeground))
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete %s: %w", o.GetName(), err)
	}
	c.say("ending %s", o.GetName())
	began, name := time.Now(), o.GetName()
	for {
		err := c.Get(ctx, client.ObjectKeyFromObject(o), o)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("look at %s: %w", name, err)
		}
		if force {
			if err := c.forgetPods(ctx, name); err != nil {
				return err
			}
		}
		if time.Since(began) > c.timeout+grace {
			return fmt.Errorf("the pods of %s have not ended within %v: see kubectl --namespace %s get pods -o wide%s; those of nodes that are gone go with their Nodes, and FORCE=1 does without nodes that are NotReady",
				name, c.timeout+grace, namespace, c.alsoAway(ctx, name))
		}
		if err := pause(ctx, every); err != nil {
			return err
		}
	}
}

// forgetPods deletes the pods of a program on nodes that are gone, without waiting for
// their kubelets.
func (c *cluster) forgetPods(ctx context.Context, name string) error {
	pods, _, err := c.podsOf(ctx, name)
	if err != nil {
		return err
	}
	for i := range pods {
		p := &pods[i]
		if !c.isGone(p.Spec.NodeName) {
			continue
		}
		c.say("node %s is NotReady: its pod %s is forgotten, and may still run there", p.Spec.NodeName, p.Name)
		if err := c.Delete(ctx, p, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete pod %s: %w", p.Name, err)
		}
	}
	return nil
}

// alsoAway names the nodes, for the end of a message, on which pods of a program are and
// that are NotReady.
func (c *cluster) alsoAway(ctx context.Context, name string) string {
	pods, away, err := c.podsOf(ctx, name)
	if err != nil {
		return fmt.Sprintf(" (%v)", err)
	}
	var on []string
	for _, p := range pods {
		if away[p.Spec.NodeName] {
			on = append(on, p.Spec.NodeName)
		}
	}
	if len(on) == 0 {
		return ""
	}
	return fmt.Sprintf(" (NotReady: %s)", strings.Join(on, ", "))
}

// deleteRest deletes what is left: roles, policies, the definitions, and with them what is
// still there of their kinds, and at last the namespace, which has the record.
func (c *cluster) deleteRest(ctx context.Context, text []byte) error {
	last, first, err := split(text, func(o *unstructured.Unstructured) bool { return o.GetKind() == "Namespace" })
	if err != nil {
		return err
	}
	for _, part := range [][]byte{first, last} {
		said, err := kubectl(ctx, part, "--context", c.context, "delete", "--ignore-not-found", "--timeout", c.timeout.String(), "-f", "-")
		if err != nil {
			return errors.Join(errors.New("not all of Tenure is gone; run it again"), err)
		}
		if len(said) > 0 {
			c.say("%s", strings.TrimSpace(string(said)))
		}
	}
	return nil
}
