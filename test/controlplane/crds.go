package controlplane

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// installCRDs creates or updates the CustomResourceDefinitions in paths, which
// are files or directories, and returns when the API server serves them.
func (cp *ControlPlane) installCRDs(ctx context.Context, paths ...string) error {
	if len(paths) == 0 {
		return nil
	}
	o := envtest.CRDInstallOptions{Paths: paths, ErrorIfPathMissing: true, MaxTime: 30 * time.Second, PollInterval: 20 * time.Millisecond}
	done := make(chan error, 1)
	go func() { // envtest knows no context; it ends with MaxTime
		_, err := envtest.InstallCRDs(cp.Config(), o)
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("install CRDs: %w", err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("install CRDs: %w", context.Cause(ctx))
	}
}
