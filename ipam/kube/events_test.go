package kube

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// refusing takes events from a moment on, and until then answers err.
type refusing struct {
	client.Client
	from  time.Time
	err   error
	tries int
	took  int
}

func (r *refusing) Scheme() *runtime.Scheme { return clientgoscheme.Scheme }

func (r *refusing) Create(context.Context, client.Object, ...client.CreateOption) error {
	r.tries++
	if time.Now().Before(r.from) {
		return r.err
	}
	r.took++
	return nil
}

// TestEventOutlastsAStart: what is said while the API server starts, and forbids everything
// or cannot serve, is told when it can. What it will never take is not tried again, nor is
// anything for ever.
func TestEventOutlastsAStart(t *testing.T) {
	forbid := func() *apierrors.StatusError {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "", errors.New("not known yet"))
	}
	ending := forbid()
	ending.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for _, tt := range []struct {
		name        string
		lasts       time.Duration
		err         error
		took, tries int // tries 0 is any number
	}{
		{"it takes it", 0, nil, 1, 1},
		{"it does not know yet who may", time.Minute, forbid(), 1, 0},
		{"it does not know yet who it is", time.Minute, apierrors.NewUnauthorized("not known yet"), 1, 0},
		{"it cannot serve yet", time.Minute, apierrors.NewServiceUnavailable("starting"), 1, 0},
		{"nobody may for long", time.Hour, forbid(), 0, 12},
		{"the namespace is being deleted", time.Minute, ending, 0, 1},
		{"it is no event", time.Minute, apierrors.NewBadRequest("no"), 0, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &refusing{from: time.Now().Add(tt.lasts), err: tt.err}
				e := NewAPI(c).Events(t.Context(), "tenured", "n1")
				e.WarnNode("n1", "u", "Fenced", "nothing is given out")
				time.Sleep(3 * time.Minute)
				synctest.Wait()
				e.Stop()
				if c.took != tt.took || tt.tries != 0 && c.tries != tt.tries {
					t.Errorf("taken %d times of %d; want %d of %d", c.took, c.tries, tt.took, tt.tries)
				}
			})
		})
	}
}
