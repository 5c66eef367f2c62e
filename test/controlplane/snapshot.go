package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
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

// Remove removes the snapshot, which cannot be restored any more.
func (s Snapshot) Remove() error { return os.RemoveAll(filepath.Dir(s.dir)) }

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

// EtcdRevision returns etcd's revision, the highest resourceVersion that anybody can
// have been given.
func (cp *ControlPlane) EtcdRevision(ctx context.Context) (int64, error) {
	return cp.askEtcd(ctx, "/v3/maintenance/status", `{}`)
}

// RaiseEtcdRevision writes to etcd, beside what the API server has there, until its
// revision is above another. So a restored etcd is brought above all that it was before,
// which etcd's own tool does by --bump-revision: no resourceVersion is given twice then,
// and none that was given before is above what the API server says now.
func (cp *ControlPlane) RaiseEtcdRevision(ctx context.Context, above int64) error {
	for {
		// The key "bump", outside of what the API server lists.
		revision, err := cp.askEtcd(ctx, "/v3/kv/put", `{"key":"YnVtcA=="}`)
		if err != nil || revision > above {
			return err
		}
	}
}

// askEtcd makes a call through etcd's gateway for JSON, and returns the revision that
// etcd answers by.
func (cp *ControlPlane) askEtcd(ctx context.Context, path, body string) (revision int64, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, cp.etcdURL+path, bytes.NewBufferString(body))
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, fmt.Errorf("ask etcd: %w", err)
	}
	defer resp.Body.Close()
	var answer struct {
		Header struct {
			Revision int64 `json:"revision,string"`
		} `json:"header"`
	}
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("etcd answers %s to %s", resp.Status, path)
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return 0, fmt.Errorf("etcd's answer to %s: %w", path, err)
	}
	return answer.Header.Revision, nil
}
