package controlplane

import (
	"context"
	"fmt"
	"time"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// InstallCRDs creates or updates the CustomResourceDefinitions in paths, which
// are files or directories, and returns when the API server serves them.
func (cp *ControlPlane) InstallCRDs(ctx context.Context, paths ...string) error {
	return cp.installCRDs(ctx, envtest.CRDInstallOptions{Paths: paths, ErrorIfPathMissing: true})
}

// InstallCRDObjects does what InstallCRDs does, with definitions in memory.
func (cp *ControlPlane) InstallCRDObjects(ctx context.Context, crds ...*apiextensions.CustomResourceDefinition) error {
	return cp.installCRDs(ctx, envtest.CRDInstallOptions{CRDs: crds})
}

func (cp *ControlPlane) installCRDs(ctx context.Context, o envtest.CRDInstallOptions) error {
	if len(o.Paths) == 0 && len(o.CRDs) == 0 {
		return nil
	}
	o.MaxTime, o.PollInterval = 30*time.Second, 20*time.Millisecond
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
