package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// A Snapshot is the state of a control plane's etcd at one moment.
type Snapshot struct{ dir string }

// SnapshotEtcd copies etcd's data while etcd is frozen for a moment: the copy is
// what a kill of etcd in that moment would have left. etcd must run. The snapshot
// lies in Dir and lives as long as that.
func (cp *ControlPlane) SnapshotEtcd() (s Snapshot, err error) {
	dir, err := os.MkdirTemp(cp.dir, "snapshot")
	if err != nil {
		return Snapshot{}, err
	}
	if err := cp.PauseEtcd(); err != nil {
		return Snapshot{}, err
	}
	s.dir = filepath.Join(dir, "etcd")
	if err := errors.Join(os.CopyFS(s.dir, os.DirFS(cp.etcdDir())), cp.ResumeEtcd()); err != nil {
		return Snapshot{}, fmt.Errorf("take a snapshot of etcd: %w", err)
	}
	return s, nil
}

// RestoreEtcd kills the API server and etcd, puts s in the place of etcd's data and
// starts both again: whatever was written since s has not happened, and its
// resourceVersions are given once more. s can be restored again.
func (cp *ControlPlane) RestoreEtcd(ctx context.Context, s Snapshot) error {
	if err := errors.Join(cp.StopAPIServer(), cp.StopEtcd()); err != nil {
		return err
	}
	if err := os.RemoveAll(cp.etcdDir()); err != nil {
		return fmt.Errorf("remove etcd's data: %w", err)
	}
	if err := os.CopyFS(cp.etcdDir(), os.DirFS(s.dir)); err != nil {
		return fmt.Errorf("restore etcd's data: %w", err)
	}
	if err := cp.StartEtcd(ctx); err != nil {
		return err
	}
	return cp.StartAPIServer(ctx)
}

func (cp *ControlPlane) etcdDir() string { return filepath.Join(cp.dir, "etcd") }
