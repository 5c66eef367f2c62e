package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tenure-ipam/tenure/deploy"
)

// install applies the manifests and waits until all of it is ready. It does so as well
// over an earlier version, or a later one. Roles and policies come before the programs,
// which they hold.
func (c *cluster) install(ctx context.Context, o options) error {
	text, err := o.render(ctx)
	if err != nil {
		return err
	}
	programs, rules, err := split(text, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "Deployment" || o.GetKind() == "DaemonSet"
	})
	if err != nil {
		return err
	}
	if err := c.refuseOthers(ctx, o.attach); err != nil {
		return err
	}
	if err := c.stopCleaner(ctx); err != nil {
		return err
	}
	if err := c.createUpstream(ctx); err != nil {
		return err
	}
	for _, part := range [][]byte{rules, programs} {
		applied, err := kubectl(ctx, part, "--context", c.context, "apply", "-f", "-")
		if err != nil {
			return err
		}
		c.say("%s", strings.TrimSpace(string(applied)))
	}
	var away []string
	for _, r := range []rollout{{new(appsv1.Deployment), controllerName}, {new(appsv1.DaemonSet), agentName}} {
		without, err := c.await(ctx, r)
		if err != nil {
			return err
		}
		away = append(away, without...)
	}
	c.say("Tenure is installed: %s/{tenured,tenure-controller}:%s", strings.TrimSuffix(o.registry, "/"), o.tag)
	if len(away) > 0 {
		c.say("WARNING: not on nodes that are NotReady: %s. It gets there when they are back", strings.Join(away, ", "))
	}
	return nil
}

// refuseOthers returns an error where this would break what is installed. Where Helm keeps
// it, what somebody else applies is undone by its next upgrade, or makes that fail. Where
// agents keep a configuration of tenure-attach's and this would not, it would stay on
// nodes with nobody to keep it, and pods be attached by Multus besides.
func (c *cluster) refuseOthers(ctx context.Context, attach bool) error {
	agent, err := c.agent(ctx)
	if err != nil || agent == nil {
		return err
	}
	if release := agent.Annotations["meta.helm.sh/release-name"]; release != "" {
		return fmt.Errorf("Helm has installed Tenure here: use helm upgrade --namespace %s %s deploy/chart", namespace, release)
	}
	if attaches(agent) && !attach {
		return errors.New("tenure-attach is installed here, in Multus's place (the agents have --cni-conf), and this would leave it out: use ATTACH=yes. To do without it from now on, uninstall Tenure first")
	}
	return nil
}

// createUpstream creates the definitions of others where they are absent, and leaves
// those that are there as they are.
func (c *cluster) createUpstream(ctx context.Context) error {
	return fs.WalkDir(deploy.FS, "crds/upstream", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := deploy.FS.ReadFile(path)
		if err != nil {
			return err
		}
		objects, err := parse(text)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		for _, o := range objects {
			err := c.Create(ctx, o)
			switch {
			case apierrors.IsAlreadyExists(err):
				c.say("%s is there, and stays as it is", o.GetName())
			case err != nil:
				return errors.Join(fmt.Errorf("create %s", o.GetName()), err)
			default:
				c.say("%s created", o.GetName())
			}
		}
		return nil
	})
}
