package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/deploy"
)

// install applies the manifests and waits until all of it is ready. It does so as well
// over an earlier version, or a later one.
func (c *cluster) install(ctx context.Context, o options) error {
	text, err := o.render(ctx)
	if err != nil {
		return err
	}
	if err := c.refuseHelms(ctx); err != nil {
		return err
	}
	if err := c.createUpstream(ctx); err != nil {
		return err
	}
	applied, err := kubectl(ctx, text, "--context", c.context, "apply", "-f", "-")
	if err != nil {
		return err
	}
	c.say("%s", strings.TrimSpace(string(applied)))
	for _, r := range []rollout{{new(appsv1.Deployment), controllerName}, {new(appsv1.DaemonSet), agentName}} {
		if err := c.await(ctx, r); err != nil {
			return err
		}
	}
	c.say("Tenure is installed: %s/{tenured,tenure-controller}:%s", strings.TrimSuffix(o.registry, "/"), o.tag)
	return nil
}

// refuseHelms returns an error where Helm keeps this installation: what somebody else
// applies is undone by its next upgrade, or makes that fail.
func (c *cluster) refuseHelms(ctx context.Context) error {
	var agent appsv1.DaemonSet
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: agentName}, &agent)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("ask for what is installed: %w", err)
	}
	if release := agent.Annotations["meta.helm.sh/release-name"]; release != "" {
		return fmt.Errorf("Helm has installed Tenure here: use helm upgrade --namespace %s %s deploy/chart", namespace, release)
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
