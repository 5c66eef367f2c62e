package workloads

import (
	"context"
	"fmt"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/ipam/reported"
)

// maxEvents is how many faults of one look are told by Events of their own.
const maxEvents = 5

// tell makes Events of the faults that people were not told at the last look.
func tell(ctx context.Context, known *reported.Faults[fault], to events.EventRecorder, log *slog.Logger, obj client.Object, faults []fault) {
	faults = known.New(client.ObjectKeyFromObject(obj), faults...)
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
