package controller

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/tenure-ipam/tenure/api/vif"
	"github.com/tenure-ipam/tenure/attach/controller/podnetworks"
	"github.com/tenure-ipam/tenure/claims/vifs"
	"github.com/tenure-ipam/tenure/ipam/controller/ports"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// vifs has the manager decide about interfaces of pods. Where it is not to, what a controller that
// did has made of definitions is deleted; claims of pods stay, and go with these.
func (c *Controller) vifs(ctx context.Context, mgr manager.Manager, direct client.Client, made *ports.Ports) error {
	log := c.log.With("part", "vifs")
	shared := &podnetworks.Cluster{Cache: mgr.GetCache(), Live: direct, Events: mgr.GetEventRecorder(name), Log: log}
	if !c.cfg.VIFs {
		return retire(mgr, log, shared.RetireVIFs)
	}
	switch missing, err := undefined(mgr, "InterfaceParameters"); {
	case err != nil:
		return err
	case missing != "":
		log.ErrorContext(ctx, "no VIFs are served: install Tenure's CustomResourceDefinitions, and start the controller again", "undefined", missing)
		return nil
	}
	if err := podnetworks.IndexVIFs(ctx, mgr.GetFieldIndexer()); err != nil {
		return err //nolint:wrapcheck // says what it is about
	}
	if err := vifs.Index(ctx, mgr.GetFieldIndexer()); err != nil {
		return err //nolint:wrapcheck // likewise
	}
	if err := (&podnetworks.VIFs{Cluster: shared}).Setup(mgr); err != nil {
		return err //nolint:wrapcheck // likewise
	}
	r := &vifs.Reconciler{
		Cache: mgr.GetCache(), Live: direct, Events: mgr.GetEventRecorder(name), Log: log, Now: c.cfg.Now, Kuryr: c.cfg.KuryrAnnotation,
		PortShown: func(claim types.UID, port vif.Port) bool { return made.Shown(protocol.UID(claim), port) },
	}
	return errors.Join(r.Setup(mgr), mgr.Add(manager.RunnableFunc(r.Run)))
}
