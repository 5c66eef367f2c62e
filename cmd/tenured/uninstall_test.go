package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/attach/journal"
	"github.com/tenure-ipam/tenure/attach/plan"
	"github.com/tenure-ipam/tenure/ipam/netns"
	"github.com/tenure-ipam/tenure/ipam/node/store"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// installed makes a node's directories with all that Tenure puts there, and beside it
// what is others', and returns the flags that name them.
func installed(t *testing.T) (dir string, flags []string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range map[string]string{
		"bin/tenure": "1", "bin/tenure-attach": "1", "bin/.tenure.new": "half", "bin/bridge": "1",
		"conf/00-tenure.conflist": `{"plugins": [{"type": "tenure-attach"}]}`, "conf/10-pods.conflist": "{}",
		"conf/00-tenure.conflist.cilium_bak": `{"plugins": [{"type": "tenure-attach"}]}`,
		"state/journal/x.del":                "1", "state/agent/history/0000000001.jsonl": "{}", "state/local/jobs.db": "1", "run/agent.sock.lock": "1", "run/dra/dranet.sock": "1", "run/docker.sock": "1", "state/mysql/db": "1",
		"cni/tenure-attach/default": "{}", "cni/networks/pods/10.0.0.1": "1",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	return dir, []string{
		"uninstall", "--bin", in("bin"), "--cni-conf-dir", in("conf"), "--store", in("state/agent/store.db"), "--journal", in("state/journal"),
		"--socket", in("run/agent.sock"), "--attach-state", in("cni/tenure-attach"),
	}
}

// files returns the regular files below dir.
func files(t *testing.T, dir string) (found []string) {
	t.Helper()
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			rel, _ := filepath.Rel(dir, path)
			found = append(found, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func call(t *testing.T, args ...string) (said string, err error) {
	t.Helper()
	var out, stderr bytes.Buffer
	err = run(t.Context(), args, none, &out, &stderr)
	return out.String(), err
}

// others is what is left of a node of which everything of Tenure's has been removed.
const others = "bin/bridge cni/networks/pods/10.0.0.1 conf/10-pods.conflist run/docker.sock state/local/jobs.db state/mysql/db"

// attachment puts one into the agent's store, of a pod whose network namespace is at a
// path.
func attachment(t *testing.T, dir, netns string) *store.Store {
	t.Helper()
	return attachmentAt(t, filepath.Join(dir, "state/agent/store.db"), netns)
}

// attachmentAt does so with the store at a path.
func attachmentAt(t *testing.T, path, netns string) *store.Store {
	t.Helper()
	s, err := store.Open(path, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	err = s.Update(t.Context(), func(tx *store.Tx) error {
		return tx.PutAttachment(store.Attachment{
			Key: store.Key{Network: "lan", ContainerID: "c1", IfName: "net1"}, Pod: protocol.PodRef{Namespace: "shop", Name: "web", UID: "u1"}, Netns: netns,
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestUninstall(t *testing.T) {
	dir, flags := installed(t)
	// A pod's that is gone stands in nobody's way.
	if err := attachment(t, dir, filepath.Join(dir, "gone")).Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time there is nothing to do
		if said, err := call(t, flags...); err != nil {
			t.Fatalf("%v after\n%s", err, said)
		}
		if left := strings.Join(files(t, dir), " "); left != others {
			t.Errorf("left are %s; want what is others', %s", left, others)
		}
		if exists(filepath.Join(dir, "run/dra")) {
			t.Error("the directory of DRANET's socket is left")
		}
	}
}

// TestUninstallRefuses: while a pod needs Tenure for its end, all of it stays, and the
// pod is named; by force it goes.
func TestUninstallRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		use  func(t *testing.T, dir, netns string)
		want string
	}{
		"an address": {func(t *testing.T, dir, netns string) {
			t.Helper()
			if err := attachment(t, dir, netns).Close(); err != nil {
				t.Fatal(err)
			}
		}, "shop/web net1 (lan)"},
		"further networks": {func(t *testing.T, dir, netns string) {
			t.Helper()
			log, err := journal.Dir{Path: filepath.Join(dir, "cni/tenure-attach")}.Create(journal.Head{
				Key: journal.Key{ContainerID: "c1", Network: "tenure", IfName: "eth0"}, Netns: netns,
				Plan: plan.Plan{Pod: facts.PodRef{Namespace: "shop", Name: "web"}, Steps: make([]plan.Step, 2)},
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := log.Close(); err != nil {
				t.Fatal(err)
			}
		}, "shop/web (2 networks)"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, flags := installed(t)
			tt.use(t, dir, filepath.Join(dir, "bin")) // a path that exists
			before := files(t, dir)
			_, err := call(t, flags...)
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "nothing was removed") {
				t.Errorf("got %v; want it refused for %s", err, tt.want)
			}
			if after := files(t, dir); strings.Join(after, " ") != strings.Join(before, " ") {
				t.Errorf("left are %q; want all of %q", after, before)
			}
			said, err := call(t, append(flags, "--force")...)
			if err != nil || !strings.Contains(said, tt.want) {
				t.Errorf("by force: %v, says\n%s; want it to name %s", err, said, tt.want)
			}
			if left := strings.Join(files(t, dir), " "); left != others {
				t.Errorf("left are %s; want what is others', %s", left, others)
			}
		})
	}
}

// TestUninstallOfMovedFiles: where the agent was told other paths, the pods in its store count, and
// its files go, and nothing beside them.
func TestUninstallOfMovedFiles(t *testing.T) {
	dir, flags := installed(t)
	in := func(name string) string { return filepath.Join(dir, name) }
	moved := append(flags, "--store", in("disk/tenured.db"), "--journal", in("disk/late"), "--socket", in("disk/s"), "--reports", in("disk/told"))
	hex := strings.Repeat("0a", 16)
	ours := []string{
		"disk/late/x.del", "disk/late/y.tmp", "disk/late/x.del.damaged", "disk/s.lock", "disk/told/" + hex + ".json", "disk/told/" + hex + ".shown", "disk/told/" + hex + ".json.new",
		"disk/cni-conf.json", "disk/tenured.db.20260102T150405.000Z-damaged",
	}
	const theirs = "late/notes s3/photo tenured.db-backup/db told/other.json"
	for _, name := range append(ours, "disk/late/notes", "disk/s3/photo", "disk/tenured.db-backup/db", "disk/told/other.json") {
		if err := errors.Join(os.MkdirAll(filepath.Dir(in(name)), 0o755), os.WriteFile(in(name), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := attachmentAt(t, in("disk/tenured.db"), in("bin")).Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := call(t, moved...); err == nil || !strings.Contains(err.Error(), "shop/web net1 (lan)") {
		t.Errorf("got %v; want it refused for the pod in the store", err)
	}
	said, err := call(t, append(moved, "--force")...)
	if err != nil {
		t.Fatalf("%v after\n%s", err, said)
	}
	if left := strings.Join(files(t, in("disk")), " "); left != theirs {
		t.Errorf("left are %q; want what is another's", left)
	}
}

// TestUninstallDoesNotTakeUnseenForGone: a network namespace that a container cannot see, as that
// of a process, or one in a directory that is not mounted, may be there.
func TestUninstallDoesNotTakeUnseenForGone(t *testing.T) {
	for name, path := range map[string]string{"a process's": "/proc/4194399/ns/net", "in a directory that is not there": "/no/such/netns/x", "none is known": ""} {
		t.Run(name, func(t *testing.T) {
			dir, flags := installed(t)
			if err := attachment(t, dir, path).Close(); err != nil {
				t.Fatal(err)
			}
			_, err := call(t, flags...)
			refused := err != nil && strings.Contains(err.Error(), "shop/web net1 (lan)")
			if want := !strings.HasPrefix(path, "/proc/") || !netns.SeesHost(); refused != want {
				t.Errorf("%v; want it refused: %v", err, want)
			}
		})
	}
}

func TestUninstallRefusesWhileTheAgentRuns(t *testing.T) {
	dir, flags := installed(t)
	attachment(t, dir, filepath.Join(dir, "bin"))
	before := strings.Join(files(t, dir), " ")
	for _, args := range [][]string{flags, append(flags, "--force")} {
		if _, err := call(t, args...); err == nil || !strings.Contains(err.Error(), "agent of this node runs") {
			t.Errorf("%v: %v; want it to say that the agent runs", args, err)
		}
		if after := strings.Join(files(t, dir), " "); after != before {
			t.Errorf("%v: left are %s; want all of %s", args, after, before)
		}
	}
}

// TestUninstallLeavesOthersConfiguration: by the name of Tenure's may lie another's.
func TestUninstallLeavesOthersConfiguration(t *testing.T) {
	dir, flags := installed(t)
	path := filepath.Join(dir, "conf/00-tenure.conflist")
	if err := os.WriteFile(path, []byte(`{"plugins": [{"type": "bridge"}]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if said, err := call(t, flags...); err != nil || !strings.Contains(said, "not Tenure's") {
		t.Errorf("%v, says\n%s", err, said)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}

// TestUninstallBesideAnAgentThatStarts: it is told apart by its lock, also where it starts
// between the two times that a store behind its redo log is opened.
func TestUninstallBesideAnAgentThatStarts(t *testing.T) {
	for _, answers := range [][]error{{store.ErrLocked}, {store.ErrReadOnly, store.ErrLocked}} {
		_, err := openEnded("store.db", func(string, store.Options) (*store.Store, error) {
			err := answers[0]
			answers = answers[1:]
			return nil, err
		})
		if !errors.Is(err, store.ErrLocked) || !strings.Contains(err.Error(), "the agent of this node runs") {
			t.Errorf("%v; want that the agent runs", err)
		}
	}
}
