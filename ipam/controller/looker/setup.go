package looker

import (
	"context"
	"fmt"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	"k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/foreign"
)

// Setup has the manager run l while it leads, and wakes l when a pool or a definition
// changes what it is about.
func (l *Looker) Setup(mgr ctrl.Manager) error {
	wake := l.handler()
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		l.mu.Lock()
		l.names = newNames(l.Now())
		l.mu.Unlock()
		for _, of := range []client.Object{&v1alpha1.IPPool{}, &nad.NetworkAttachmentDefinition{}} {
			informer, err := mgr.GetCache().GetInformer(ctx, of)
			if err != nil {
				return fmt.Errorf("watch for what other IPAMs give: %w", err)
			}
			if _, err := informer.AddEventHandler(wake); err != nil {
				return fmt.Errorf("watch for what other IPAMs give: %w", err)
			}
		}
		return l.Run(ctx)
	}))
}

// handler returns what hears of pools and definitions.
func (l *Looker) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(o any, first bool) {
			l.added(o, first)
			l.Wake()
		},
		UpdateFunc: func(was, is any) {
			if a, ok := was.(client.Object); ok && a.GetUID() != is.(client.Object).GetUID() {
				l.removed(was)
				l.added(is, false)
			} else {
				l.edited(was, is)
			}
			if changed(was, is) {
				l.Wake()
			}
		},
		DeleteFunc: func(o any) {
			if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = last.Obj
			}
			l.removed(o)
			l.Wake()
		},
	}
}

// added notes that an object was made, if it is a definition.
func (l *Looker) added(o any, first bool) {
	if d, ok := o.(*nad.NetworkAttachmentDefinition); ok {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.names.added(d, first, l.Now())
	}
}

// edited notes that an object was written again, if it is a definition.
func (l *Looker) edited(was, is any) {
	a, ok := was.(*nad.NetworkAttachmentDefinition)
	b, ok2 := is.(*nad.NetworkAttachmentDefinition)
	if ok && ok2 {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.names.edited(a, b, l.Now())
	}
}

// removed notes that an object is gone, if it is a definition.
func (l *Looker) removed(o any) {
	if d, ok := o.(*nad.NetworkAttachmentDefinition); ok {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.names.removed(d, l.Now())
	}
}

// changed reports whether an object has changed in something that matters to a look. The counts of
// a pool do not.
func changed(was, is any) bool {
	a, ok := was.(*v1alpha1.IPPool)
	b, ok2 := is.(*v1alpha1.IPPool)
	return !ok || !ok2 || foreign.StateOf(a) != foreign.StateOf(b)
}
