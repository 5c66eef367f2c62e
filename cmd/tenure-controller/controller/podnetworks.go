package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/attach/controller/gate"
	"github.com/tenure-ipam/tenure/attach/controller/podnetworks"
	"github.com/tenure-ipam/tenure/ipam/kube"
)

// podNetworks has the manager serve PodNetworks. Where they are not to be served, it has undone
// what a controller that served them has left. Where their kinds are not defined, nobody serves
// them: the caches would never be filled.
func (c *Controller) podNetworks(ctx context.Context, mgr manager.Manager, direct client.Client, live *kube.API) error {
	log := c.log.With("part", "podnetworks")
	shared := &podnetworks.Cluster{
		Cache: mgr.GetCache(), Live: direct, Events: mgr.GetEventRecorder(name), Log: log, KeepDefault: c.cfg.DefaultPodNetwork,
	}
	if !c.cfg.MultiNetwork {
		release := &gate.Release{Live: direct, Log: log}
		return errors.Join(mgr.Add(manager.RunnableFunc(release.Run)), retire(mgr, log, shared.Retire))
	}
	switch missing, err := undefined(mgr, "PodNetwork", "PodNetworkAttachment", "InterfaceParameters"); {
	case err != nil:
		return err
	case missing != "":
		log.ErrorContext(ctx, "no PodNetworks are served: install Tenure's CustomResourceDefinitions, and start the controller again", "undefined", missing)
		return nil
	}
	if err := podnetworks.Index(ctx, mgr.GetFieldIndexer()); err != nil {
		return err //nolint:wrapcheck // says what it is about
	}
	if err := (&podnetworks.Networks{Cluster: shared}).Setup(mgr); err != nil {
		return err //nolint:wrapcheck // likewise
	}
	if err := (&podnetworks.Unattached{Cluster: shared, Now: c.cfg.Now}).Setup(mgr); err != nil {
		return err //nolint:wrapcheck // likewise
	}
	if err := (&podnetworks.Attachments{Cluster: shared}).Setup(mgr); err != nil {
		return err //nolint:wrapcheck // likewise
	}
	return c.gate(ctx, mgr, direct, live)
}

// undefined returns the first of Tenure's kinds that the API server does not know; empty: it knows
// all of them.
func undefined(mgr manager.Manager, kinds ...string) (kind string, err error) {
	for _, kind := range kinds {
		_, err := mgr.GetRESTMapper().RESTMapping(schema.GroupKind{Group: v1alpha1.GroupName, Kind: kind}, v1alpha1.GroupVersion.Version)
		if meta.IsNoMatchError(err) {
			return kind, nil
		}
		if err != nil {
			return "", fmt.Errorf("ask the API server whether %s is defined: %w", kind, err)
		}
	}
	return "", nil
}

// retireEvery is how long after a failure it is tried again to undo what is not served any more.
const retireEvery = 10 * time.Second

// retire has the manager undo, once, what a controller that served something has left. It tries
// again until it has, or the manager ends.
func retire(mgr manager.Manager, log *slog.Logger, undo func(context.Context) error) error {
	return mgr.Add(background(func(ctx context.Context) { //nolint:wrapcheck // says what it is about
		// It ends with ctx alone.
		_ = wait.PollUntilContextCancel(ctx, retireEvery, true, func(ctx context.Context) (bool, error) {
			err := undo(ctx)
			if err != nil {
				log.WarnContext(ctx, "what is not served any more is not undone yet: it is tried again", "error", err)
			}
			return err == nil, nil
		})
	}))
}
