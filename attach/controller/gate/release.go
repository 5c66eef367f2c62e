package gate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/podnetwork"
)

// How long a [Release] waits before it looks again.
const (
	// recheckSoon is after an error, and while the API server looks at pods for us.
	recheckSoon = 10 * time.Second
	// recheckLate is otherwise: an API server may have given a pod its gate before it had heard.
	recheckLate = time.Minute
)

// pageSize is how many pods one call lists.
const pageSize = 500

// Release takes the gate from all pods, while PodNetworks are not served. Nobody else would.
type Release struct {
	Live client.Client
	Log  *slog.Logger
}

// Run works until ctx ends. It looks again and again: what gives pods gates may be removed later
// than the flag is, and every API server hears of that in its own time.
func (r *Release) Run(ctx context.Context) error {
	told, failed := "", ""
	for {
		left, err := r.admission(ctx)
		err = errors.Join(err, r.sweep(ctx))
		if now := strings.Join(left, ", "); now != told {
			if told = now; now != "" {
				r.Log.WarnContext(ctx, "PodNetworks are not served here (--multi-network is off), and the API server still looks at pods for them; gates are removed: delete these objects", "objects", now)
			}
		}
		if now := fmt.Sprint(err); now != failed && ctx.Err() == nil {
			if failed = now; err != nil {
				r.Log.ErrorContext(ctx, "the gates of pods are not all removed; this is tried again", "gate", podnetwork.Gate, "error", err)
			}
		}
		wait := recheckLate
		if err != nil || len(left) > 0 {
			wait = recheckSoon
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// admission returns what the API server still does with pods that list PodNetworks.
func (r *Release) admission(ctx context.Context) (left []string, err error) {
	for _, kind := range []string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "MutatingAdmissionPolicy"} {
		o := &metav1.PartialObjectMetadata{}
		o.SetGroupVersionKind(schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: kind})
		call, cancel := context.WithTimeout(ctx, callTimeout)
		err := r.Live.Get(call, client.ObjectKey{Name: podnetwork.Admission}, o)
		cancel()
		switch {
		case err == nil:
			left = append(left, kind+" "+podnetwork.Admission)
		case !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err):
			return left, fmt.Errorf("look for %s %s: %w", kind, podnetwork.Admission, err)
		}
	}
	return left, nil
}

// sweep takes the gate from every pod that has it. Only pods without a node can have one.
func (r *Release) sweep(ctx context.Context) error {
	var faults []error
	removed := 0
	for token := ""; ; {
		var page corev1.PodList
		call, cancel := context.WithTimeout(ctx, callTimeout)
		err := r.Live.List(call, &page, client.MatchingFields{"spec.nodeName": ""}, client.Limit(pageSize), client.Continue(token))
		cancel()
		if err != nil {
			return errors.Join(append(faults, fmt.Errorf("list pods without a node: %w", err))...)
		}
		for pod := range slices.Values(page.Items) {
			if !isGated(&pod) {
				continue
			}
			if err := lift(ctx, r.Live, &pod); err != nil {
				faults = append(faults, err)
				continue
			}
			removed++
		}
		if token = page.Continue; token == "" {
			break
		}
	}
	if removed > 0 {
		r.Log.InfoContext(ctx, "gates of pods are removed, since PodNetworks are not served", "gate", podnetwork.Gate, "pods", removed)
	}
	return errors.Join(faults...)
}
