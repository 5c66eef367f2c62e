package advertise

import (
	"context"
	"log/slog"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/ipam/kube"
)

// page is how many pods are read at once.
const page = 500

// running selects the pods whose requests the scheduler counts.
var running = fields.ParseSelectorOrDie("status.phase!=" + string(corev1.PodSucceeded) + ",status.phase!=" + string(corev1.PodFailed)).String()

// A Watch keeps Pods as the API server has them, from the moment when somebody wants to know of
// them: a cluster that advertises no pool pays nothing. Of pods that ask for nothing it keeps
// nothing. Make one with [NewWatch].
type Watch struct {
	pods *Pods
	from client.WithWatch
	log  *slog.Logger

	wanted chan struct{}
	once   sync.Once
}

// NewWatch returns what keeps pods.
func NewWatch(pods *Pods, from client.WithWatch, log *slog.Logger) *Watch {
	return &Watch{pods: pods, from: from, log: log, wanted: make(chan struct{})}
}

// Want has the watch begin. It does not wait.
func (w *Watch) Want() { w.once.Do(func() { close(w.wanted) }) }

// Run watches, once it is wanted, until ctx ends.
func (w *Watch) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-w.wanted:
	}
	lw := kube.Persist(lister{&toolscache.ListWatch{ListWithContextFunc: w.list, WatchFuncWithContext: w.watch}}, kube.ControllerPause)
	r := toolscache.NewReflectorWithOptions(lw, &corev1.Pod{}, w.pods, toolscache.ReflectorOptions{Name: "pods that ask for addresses"})
	r.RunWithContext(logr.NewContext(ctx, logr.FromSlogHandler(w.log.Handler())))
	return nil
}

// lister lists in pages, of which it drops what is not needed, and not in one stream.
type lister struct{ *toolscache.ListWatch }

// IsWatchListSemanticsUnSupported tells client-go so.
func (lister) IsWatchListSemanticsUnSupported() bool { return true }

// list returns the pods that ask for addresses.
func (w *Watch) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	options.FieldSelector, options.Limit, options.Continue = running, page, ""
	// A page can be asked for of the newest state alone, or of an exact one.
	options.ResourceVersion, options.ResourceVersionMatch = "", ""
	all := &corev1.PodList{}
	for {
		var some corev1.PodList
		if err := w.from.List(ctx, &some, &client.ListOptions{Raw: &options, Limit: options.Limit, Continue: options.Continue}); err != nil {
			return nil, err //nolint:wrapcheck // client-go tells what it is by its type
		}
		for i := range some.Items {
			if _, ok := read(&some.Items[i]); ok {
				all.Items = append(all.Items, some.Items[i])
			}
		}
		if all.ListMeta = some.ListMeta; some.Continue == "" {
			return all, nil
		}
		options.Continue = some.Continue
	}
}

func (w *Watch) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	options.FieldSelector = running
	return w.from.Watch(ctx, &corev1.PodList{}, &client.ListOptions{Raw: &options}) //nolint:wrapcheck // likewise
}

var _ toolscache.ReflectorStore = (*Pods)(nil)
