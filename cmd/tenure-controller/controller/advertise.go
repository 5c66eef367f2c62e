package controller

import (
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/tenure-ipam/tenure/ipam/controller/advertise"
	"github.com/tenure-ipam/tenure/ipam/controller/trigger"
)

// advertise has the manager tell Nodes what pools have that are to be advertised. No pool has to:
// so pods are watched once there is one.
func (c *Controller) advertise(mgr manager.Manager, direct client.Client, rooms advertise.Rooms, changed *trigger.Source) error {
	from, err := client.NewWithWatch(c.rest, client.Options{Scheme: mgr.GetScheme(), HTTPClient: mgr.GetHTTPClient(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	log := c.log.With("part", "advertise")
	pods := &advertise.Pods{Changed: func(pool string) { changed.Fire("", pool) }, Now: c.cfg.Now}
	watch := advertise.NewWatch(pods, from, log)
	r := advertise.New(advertise.Config{
		Cache: mgr.GetCache(), RegistrationNamespace: c.cfg.RegistrationNamespace, Write: direct, Rooms: rooms, Watch: watch, Log: log, Now: c.cfg.Now,
	})
	return errors.Join(mgr.Add(manager.RunnableFunc(watch.Run)), r.Setup(mgr, changed))
}
