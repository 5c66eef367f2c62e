package workloads

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maxEvents is how many faults of one look are told by Events of their own.
const maxEvents = 5

// said has, by an object's name, the faults ([]fault) that people were told last.
type said struct{ last sync.Map }

// forget drops what people were told of an object.
func (s *said) forget(key types.NamespacedName) { s.last.Delete(key) }

// tell makes Events of the faults that people were not told at the last look.
func (s *said) tell(ctx context.Context, to events.EventRecorder, log *slog.Logger, obj client.Object, faults []fault) {
	key := client.ObjectKeyFromObject(obj)
	if len(faults) == 0 {
		s.forget(key)
		return
	}
	before, _ := s.last.Swap(key, faults)
	told, _ := before.([]fault)
	faults = slices.DeleteFunc(slices.Clone(faults), func(f fault) bool { return slices.Contains(told, f) })
	for i, f := range faults {
		if more := len(faults) - i; i == maxEvents-1 && more > 1 {
			f.message += fmt.Sprintf("; and %d more such", more-1)
		}
		if i < maxEvents {
			// The API server takes 1 KiB.
			to.Eventf(obj, nil, corev1.EventTypeWarning, f.reason, "MakeClaims", "%.1000s", f.message)
		}
		log.WarnContext(ctx, "claims are not made", "reason", f.reason, "message", f.message)
	}
}
