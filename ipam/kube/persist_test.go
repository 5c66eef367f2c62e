package kube

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"reflect"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
)

// outage is an API server with one pool, which is away until back, and counts how often
// it is tried.
type outage struct {
	back  time.Time
	tries int
}

var errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}

func (o *outage) listWatch() cache.ListerWatcher {
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			if o.tries++; time.Now().Before(o.back) {
				return nil, errRefused
			}
			return &v1alpha1.IPPoolList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []v1alpha1.IPPool{{ObjectMeta: metav1.ObjectMeta{Name: "lan"}}}}, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil },
	}, o)
}

// IsWatchListSemanticsUnSupported has the pool listed, not streamed.
func (*outage) IsWatchListSemanticsUnSupported() bool { return true }

// TestHearsSoonAfterAnOutage: however long the API server has been away, a watch hears
// within seconds of its return what there is, and has not tried all the time.
func TestHearsSoonAfterAnOutage(t *testing.T) {
	for _, most := range []time.Duration{agentPause, ControllerPause} {
		for range 5 { // its pauses are drawn
			synctest.Test(t, func(t *testing.T) {
				const away = 10 * time.Minute
				began := time.Now()
				server := &outage{back: began.Add(away)}
				heard := make(chan time.Time, 1)
				_, run := cache.NewInformerWithOptions(cache.InformerOptions{
					ListerWatcher: Persist(server.listWatch(), most), ObjectType: &v1alpha1.IPPool{},
					Handler: cache.ResourceEventHandlerFuncs{AddFunc: func(any) { heard <- time.Now() }},
				})
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					run.RunWithContext(ctx)
				}()
				if late := (<-heard).Sub(server.back); late > 2*most {
					t.Errorf("heard %v after the API server's return; want within %v", late, 2*most)
				}
				if tries := int(away/most) + 10; server.tries > tries {
					t.Errorf("%d tries in %v; want at most %d", server.tries, away, tries)
				}
				cancel()
				<-ended
			})
		}
	}
}

// TestAway: what another try would not change is left to the reflector.
func TestAway(t *testing.T) {
	pools := schema.GroupResource{Group: "tenure.dev", Resource: "ippools"}
	for _, tt := range []struct {
		name string
		err  error
		want bool
	}{
		{"nobody listens", errRefused, true},
		{"the connection breaks", errors.New("http2: client connection lost"), true},
		{"it is starting", apierrors.NewServiceUnavailable("starting"), true},
		{"it has too much to do", apierrors.NewTooManyRequests("later", 1), true},
		{"etcd does not answer", apierrors.NewInternalError(errors.New("etcdserver: request timed out")), true},
		{"no answer comes", &url.Error{Op: "Get", URL: "https://api", Err: io.EOF}, true},
		{"its certificate is not trusted", &url.Error{Op: "Get", URL: "https://api", Err: &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}}, false},
		{"its answer does not read", fmt.Errorf("unable to decode: %w", &json.UnmarshalTypeError{Value: "number", Type: reflect.TypeFor[string]()}), false},
		{"the caller has given up", context.Canceled, false},
		{"it is forbidden", apierrors.NewForbidden(pools, "lan", errors.New("no")), false},
		{"the revision is too old", apierrors.NewResourceExpired("too old resource version"), false},
		{"the revision is of a later state", tooLarge(), false},
		{"it does not know what is asked", apierrors.NewBadRequest("sendInitialEvents"), false},
	} {
		if got := away(tt.err); got != tt.want {
			t.Errorf("%s: away %v; want %v", tt.name, got, tt.want)
		}
	}
}

// tooLarge is what the API server says to a revision that it has not come to.
func tooLarge() error {
	err := apierrors.NewTimeoutError("Too large resource version: 9, current: 1", 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
	return err
}
