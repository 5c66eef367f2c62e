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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
)

// uninstall removes Tenure: first the pools, while programs run that can give their
// leases back, then the programs, then what is on the nodes, at last the rest. The
// definitions of others stay. While something has an address, or a network of
// tenure-attach's, it says what and removes nothing, unless it is forced to.
func (c *cluster) uninstall(ctx context.Context, o options) error {
	agent, err := c.agent(ctx)
	if err != nil {
		return err
	}
	if err := c.settle(ctx, agent, o.force); err != nil {
		return err
	}
	if err := c.deletePools(ctx, o.force); err != nil {
		return err
	}
	// Nothing is applied that could start the programs again: what cleans the nodes
	// takes the agent's image and directories from the agent as it was.
	for _, program := range []client.Object{
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: controllerName}},
		&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: agentName}},
	} {
		if err := c.deleteProgram(ctx, program); err != nil {
			return err
		}
	}
	if agent == nil {
		c.say("no agent is installed: nodes stay as they are")
	} else if err := c.cleanNodes(ctx, agent, o.force); err != nil {
		return err
	}
	return c.deleteRest(ctx, o)
}

// agent returns the agent's DaemonSet as it is installed, by whatever means, nil if there
// is none.
func (c *cluster) agent(ctx context.Context) (*appsv1.DaemonSet, error) {
	var set appsv1.DaemonSet
	// After an uninstallation that was broken off, what was cleaning nodes knows.
	for _, name := range []string{agentName, cleanerName} {
		err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &set)
		if err == nil {
			return &set, nil
		}
		if !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("ask for what is installed: %w", err)
		}
	}
	return nil, nil //nolint:nilnil // there is none
}

// settle returns when nothing has an address any more, or at once where that is forced.
// Leases that nothing uses are waited for: their nodes give them back within a minute.
func (c *cluster) settle(ctx context.Context, agent *appsv1.DaemonSet, force bool) error {
	deadline := time.Now().Add(c.timeout)
	for told := false; ; told = true {
		held, idle, err := c.holders(ctx, agent)
		if err != nil {
			return err
		}
		if len(held) > 0 && !force {
			return fmt.Errorf("in use, nothing was removed:\n  %s\nDelete those first. FORCE=1 removes Tenure all the same: such pods keep their interfaces, and nobody "+
				"remembers their addresses; where Multus attached them, they cannot end, as the plugin is gone that their end calls", strings.Join(abridged(held), "\n  "))
		}
		if force || idle == 0 {
			for _, h := range abridged(held) {
				c.say("still in use: %s", h)
			}
			return nil
		}
		if !told {
			c.say("waiting until %d leases that nothing uses are given back; it takes a minute", idle)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d leases have not been given back within %v: see kubectl get ipleases, and whether the agents run; FORCE=1 does without", idle, c.timeout)
		}
		if err := pause(ctx, every); err != nil {
			return err
		}
	}
}

// abridged returns the first lines, and how many more there are.
func abridged(lines []string) []string {
	const most = 20
	if len(lines) <= most {
		return lines
	}
	return append(slices.Clone(lines[:most]), fmt.Sprintf("and %d more", len(lines)-most))
}

// deletePools deletes all pools, and waits until their finalizer is gone, or takes it
// away itself where that is forced.
func (c *cluster) deletePools(ctx context.Context, force bool) error {
	deadline := time.Now().Add(c.timeout)
	if force {
		deadline = time.Now()
	}
	for said := false; ; said = true {
		var pools v1alpha1.IPPoolList
		err := c.List(ctx, &pools)
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) || err == nil && len(pools.Items) == 0 {
			return nil
		}
		if err != nil {
			return fmt.Errorf("list the pools: %w", err)
		}
		for i := range pools.Items {
			p := &pools.Items[i]
			if !said {
				c.say("deleting pool %s", p.Name)
			}
			if err := c.Delete(ctx, p); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("delete pool %s: %w", p.Name, err)
			}
			if !force {
				continue
			}
			patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
			if err := c.Patch(ctx, p, patch); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("take the finalizer from pool %s: %w", p.Name, err)
			}
		}
		if !force && time.Now().After(deadline) {
			return fmt.Errorf("pools are still there after %v: see their conditions, and whether the controller runs; FORCE=1 does without", c.timeout)
		}
		if err := pause(ctx, every); err != nil {
			return err
		}
	}
}

// deleteProgram deletes a program, and waits until its pods are gone: an agent that still
// runs has its store open.
func (c *cluster) deleteProgram(ctx context.Context, o client.Object) error {
	err := c.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationForeground))
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete %s: %w", o.GetName(), err)
	}
	c.say("ending %s", o.GetName())
	deadline := time.Now().Add(c.timeout)
	for {
		err := c.Get(ctx, client.ObjectKeyFromObject(o), o)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("look at %s: %w", o.GetName(), err)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the pods of %s have not ended within %v: see kubectl --namespace %s get pods -o wide; those of nodes that are gone go with their Nodes", o.GetName(), c.timeout, namespace)
		}
		if err := pause(ctx, every); err != nil {
			return err
		}
	}
}

// deleteRest deletes what is left: roles, policies, the namespace, the definitions, and
// with them what is still there of their kinds.
func (c *cluster) deleteRest(ctx context.Context, o options) error {
	o.attach = true // if it is not there, it need not be
	text, err := o.render(ctx)
	if err != nil {
		return err
	}
	said, err := kubectl(ctx, text, "--context", c.context, "delete", "--ignore-not-found", "--timeout", c.timeout.String(), "-f", "-")
	if err != nil {
		return errors.Join(errors.New("not all of Tenure is gone; run it again"), err)
	}
	c.say("%s", strings.TrimSpace(string(said)))
	c.say("Tenure is removed. NetworkAttachmentDefinitions and IPAMClaims, and what defines them, are as they were")
	return nil
}
