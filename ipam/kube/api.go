package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"time"

	"github.com/go-logr/logr"
	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// CallTimeout bounds every call, but for lists and an agent's creates of leases: what has
// not been answered by then has an unknown outcome.
const CallTimeout = 5 * time.Second

// DefaultRegistrationNamespace is where the registrations are.
const DefaultRegistrationNamespace = "tenure-system"

// API is the API server as the protocol sees it. Safe for concurrent use.
type API struct {
	c client.Client
	// RegistrationNamespace is the namespace of the registrations.
	RegistrationNamespace string
	// LeaseWithin bounds the create of a lease in place of CallTimeout; zero is that.
	LeaseWithin time.Duration
	// Unserved says why this node's pods are not attached to PodNetworks; empty: nothing is known
	// against it. Each write of a registration says so, too. Nil: it says nothing of it.
	Unserved func() string
}

// NewAPI returns an API over c, which must read live (made by client.New, not by
// a manager).
func NewAPI(c client.Client) *API {
	return &API{c: c, RegistrationNamespace: DefaultRegistrationNamespace}
}

// Logger returns the logger of a program that works with the API server. The client libraries
// write to it, too.
func Logger(to io.Writer, debug bool) *slog.Logger {
	level := slog.LevelInfo
	if debug {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewJSONHandler(to, &slog.HandlerOptions{Level: level}))
	ctrllog.SetLogger(logr.FromSlogHandler(log.Handler()))
	return log
}

// Config returns how to reach the API server: as a kubeconfig says, or for a program in a
// pod, where that is empty.
func Config(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		cfg, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("no --kubeconfig, and not in a cluster: %w", err)
		}
		return cfg, nil
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", kubeconfig, err)
	}
	return cfg, nil
}

// Dial returns an API and its client for cfg, without a cache.
func Dial(cfg *rest.Config) (*API, client.Client, error) {
	opts, err := ClientOptions(cfg)
	if err != nil {
		return nil, nil, err
	}
	c, err := client.New(cfg, opts)
	if err != nil {
		return nil, nil, fmt.Errorf("make a client: %w", err)
	}
	return NewAPI(c), c, nil
}

// Scheme returns the kinds that Tenure's programs use.
func Scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, v1alpha1.AddToScheme, ipamclaims.AddToScheme, nad.AddToScheme,
	} {
		if err := add(s); err != nil {
			return nil, fmt.Errorf("make a scheme: %w", err)
		}
	}
	return s, nil
}

// Classify says what the error of an API call tells about its outcome. What it
// does not know is Unknown: the call may still take effect.
func Classify(err error) protocol.Outcome {
	switch {
	case err == nil:
		return protocol.Done
	case apierrors.IsNotFound(err):
		return protocol.NotFound
	case apierrors.IsAlreadyExists(err):
		return protocol.Exists
	case apierrors.IsConflict(err):
		return protocol.Conflict
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err), apierrors.IsUnauthorized(err),
		apierrors.IsMethodNotSupported(err), apierrors.IsRequestEntityTooLargeError(err), apierrors.IsUnsupportedMediaType(err):
		return protocol.Refused
	default:
		return protocol.Unknown
	}
}

// Call makes one call to the API server, which has its deadline.
func Call(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := withTimeout(ctx)
	defer cancel()
	return f(ctx)
}

// Read reads an object from a cache.
func Read(ctx context.Context, cache client.Reader, key client.ObjectKey, o client.Object) (found bool, err error) {
	err = cache.Get(ctx, key, o)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read %T %s: %w", o, key, err)
	}
	return true, nil
}

// withTimeout gives one call its deadline.
func withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return within(ctx, CallTimeout)
}

func within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, fmt.Errorf("the API server did not answer within %v", d))
}

// get reads an object live.
func (a *API) get(ctx context.Context, key client.ObjectKey, into client.Object) (protocol.Outcome, error) {
	ctx, cancel := withTimeout(ctx)
	defer cancel()
	return outcome(ctx, a.c.Get(ctx, key, into))
}

// create creates an object, which then carries what the API server added.
func (a *API) create(ctx context.Context, obj client.Object) (protocol.Outcome, error) {
	return a.createWithin(ctx, obj, CallTimeout)
}

func (a *API) createWithin(ctx context.Context, obj client.Object, d time.Duration) (protocol.Outcome, error) {
	ctx, cancel := within(ctx, d)
	defer cancel()
	return outcome(ctx, a.c.Create(ctx, obj))
}

// swap sends a merge patch of the given top-level fields that applies only to
// the object of meta's UID and resourceVersion. It names only what it changes,
// so that fields which this program does not know survive it.
func (a *API) swap(ctx context.Context, into client.Object, meta protocol.Meta, fields map[string]any) (protocol.Outcome, error) {
	return swapBy(ctx, meta, fields, func(ctx context.Context, p client.Patch) error { return a.c.Patch(ctx, into, p) })
}

// swapStatus sends such a patch to the object's subresource status.
func (a *API) swapStatus(ctx context.Context, into client.Object, meta protocol.Meta, fields map[string]any) (protocol.Outcome, error) {
	return swapBy(ctx, meta, fields, func(ctx context.Context, p client.Patch) error { return a.c.Status().Patch(ctx, into, p) })
}

func swapBy(ctx context.Context, meta protocol.Meta, fields map[string]any, send func(context.Context, client.Patch) error) (protocol.Outcome, error) {
	patch, err := SwapPatch(meta, fields)
	if err != nil {
		return protocol.Refused, err
	}
	ctx, cancel := withTimeout(ctx)
	defer cancel()
	return outcome(ctx, send(ctx, patch))
}

// SwapPatch returns a merge patch of the given top-level fields that applies only to the object
// of meta's UID and resourceVersion; to any version, where that is empty.
func SwapPatch(meta protocol.Meta, fields map[string]any) (client.Patch, error) {
	if meta.UID == "" { // the API server would take it for a patch of whatever has the name
		return nil, fmt.Errorf("write of %s without a UID", meta.Name)
	}
	own := map[string]any{}
	if more, ok := fields["metadata"].(map[string]any); ok {
		maps.Copy(own, more)
	}
	own["uid"] = meta.UID
	if meta.Revision != "" {
		own["resourceVersion"] = meta.Revision
	}
	body := map[string]any{"metadata": own}
	for k, v := range fields {
		if k != "metadata" {
			body[k] = v
		}
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encode patch of %s: %w", meta.Name, err)
	}
	return client.RawPatch(types.MergePatchType, raw), nil
}

// remove deletes the object of exactly this UID and resourceVersion.
func (a *API) remove(ctx context.Context, obj client.Object, meta protocol.Meta) (protocol.Outcome, error) {
	uid, rev := types.UID(meta.UID), string(meta.Revision)
	ctx, cancel := withTimeout(ctx)
	defer cancel()
	return outcome(ctx, a.c.Delete(ctx, obj, client.Preconditions{UID: &uid, ResourceVersion: &rev}))
}

// outcome says what is known of a call that returned err. A call that ran into its
// deadline says so, not how the HTTP client puts it.
func outcome(ctx context.Context, err error) (protocol.Outcome, error) {
	if err != nil && ctx.Err() != nil {
		return protocol.Unknown, context.Cause(ctx)
	}
	return Classify(err), err
}

// ListTimeout bounds a list: it may be long.
const ListTimeout = 30 * time.Second

// list lists live.
func (a *API) list(ctx context.Context, into client.ObjectList, opts ...client.ListOption) error {
	ctx, cancel := within(ctx, ListTimeout)
	defer cancel()
	_, err := outcome(ctx, a.c.List(ctx, into, opts...))
	return err
}

// MetaOf reads what tells an object from others, and a version of it from others.
func MetaOf(o metav1.Object) protocol.Meta {
	return protocol.Meta{
		Name: o.GetName(), UID: protocol.UID(o.GetUID()), Revision: protocol.Revision(o.GetResourceVersion()),
		Deleting: o.GetDeletionTimestamp() != nil,
	}
}
