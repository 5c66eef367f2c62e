package kube

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"

	"github.com/tenure-ipam/tenure/ipam/pause"
)

const (
	// agentPause is how long at least a watch of an agent's waits, and twice that at
	// most, before it tries again an API server that has been away for a while. Of a
	// cluster of 15,000 nodes with five watches each, 5,000 a second come back: what the
	// kubelets' own do in the minute that client-go has them wait.
	agentPause = 10 * time.Second
	// ControllerPause is the same of a controller's, of which there are a few.
	ControllerPause = 3 * time.Second
	// firstPause is the first such wait, which each further one doubles.
	firstPause = 500 * time.Millisecond
)

// Persist returns lw, which tries again by itself while the API server is away: within
// twice most of its return at the latest. client-go's reflectors, left to themselves,
// wait up to a minute between two tries, and neither its informers nor
// controller-runtime's cache let that be set.
//
// What is not a matter of the API server's being there is returned at once.
func Persist(lw cache.ListerWatcher, most time.Duration) cache.ListerWatcher {
	return persistent{lw, cache.ToListerWatcherWithContext(lw), most}
}

// persistent is what [Persist] returns. Its methods without a context try once.
type persistent struct {
	cache.ListerWatcher
	with cache.ListerWatcherWithContext // the same
	most time.Duration
}

// ListWithContext implements [cache.ListerWithContext].
func (p persistent) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	return persist(ctx, p.most, func() (runtime.Object, error) { return p.with.ListWithContext(ctx, opts) })
}

// WatchWithContext implements [cache.WatcherWithContext].
func (p persistent) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	return persist(ctx, p.most, func() (watch.Interface, error) { return p.with.WatchWithContext(ctx, opts) })
}

// IsWatchListSemanticsUnSupported tells client-go what it would be told by what p
// stands for.
func (p persistent) IsWatchListSemanticsUnSupported() bool {
	return watchlist.DoesClientNotSupportWatchListSemantics(p.ListerWatcher)
}

// persist calls try until the API server answers, or ctx ends, and returns what it said.
func persist[T any](ctx context.Context, most time.Duration, try func() (T, error)) (T, error) {
	next := wait.Backoff{Duration: firstPause, Factor: 2, Jitter: 1, Cap: most, Steps: 100}
	for {
		got, err := try()
		if err == nil || !away(err) {
			return got, err
		}
		if !pause.For(ctx, next.Step()) {
			return got, err
		}
	}
}

// away reports whether err, of a list or a watch, says that the API server is not there,
// or cannot serve now. One that it has gone back to an earlier state is not of these: a
// reflector begins anew then.
func away(err error) bool {
	if errors.Is(err, context.Canceled) {
		return false
	}
	var status apierrors.APIStatus
	switch {
	case !errors.As(err, &status):
		return unheard(err)
	case apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge), strings.Contains(err.Error(), "Too large resource version"):
		return false
	}
	code := status.Status().Code
	return code >= 500 || code == 429
}

// unheard reports whether err says that the API server did not answer. An answer that this
// program cannot read is something else, and client-go says what it is.
func unheard(err error) bool {
	if _, untrusted := errors.AsType[*tls.CertificateVerificationError](err); untrusted {
		return false
	}
	_, network := errors.AsType[net.Error](err) // an url.Error is one, whatever it wraps
	return network || utilnet.IsProbableEOF(err) || utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) || utilnet.IsHTTP2ConnectionLost(err) ||
		errors.Is(err, io.ErrUnexpectedEOF)
}
