package process

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestAwait: what ends a wait is told apart.
func TestAwait(t *testing.T) {
	none, broken, stopped := errors.New("no pool"), errors.New("broken"), errors.New("stopped")
	cancelled, cancel := context.WithCancelCause(t.Context())
	cancel(stopped)
	looks := 0
	for _, tt := range []struct {
		name  string
		ctx   context.Context
		limit time.Duration
		look  func(context.Context) error
		want  string
	}{
		{"there at once", t.Context(), time.Minute, func(context.Context) error { return nil }, ""},
		{"there after a while", t.Context(), time.Minute, func(context.Context) error {
			if looks++; looks < 3 {
				return none
			}
			return nil
		}, ""},
		{"a final error", t.Context(), time.Minute, func(context.Context) error { return Final(broken) }, "broken"},
		{"never", t.Context(), time.Second, func(context.Context) error { return none }, "not within 1s: no pool"},
		{"never, and the last look lasts", t.Context(), time.Second, func(ctx context.Context) error {
			if looks++; looks < 6 {
				return none
			}
			<-ctx.Done()
			return ctx.Err()
		}, "not within 1s: no pool"},
		{"stopped", cancelled, time.Minute, func(context.Context) error { return none }, "stopped; last: no pool"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			if err := Await(tt.ctx, tt.limit, tt.look); err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("got %q; want %q", got, tt.want)
			}
		})
	}
}
