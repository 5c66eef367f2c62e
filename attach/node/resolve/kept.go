package resolve

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// How the file of a status is named that is on its way, and of one that its pod has got.
const (
	letterSuffix = ".json"
	shownSuffix  = ".shown"
)

// fileOf returns the name of the file for a pod's status while that is on its way.
func fileOf(pod facts.PodRef) string {
	sum := sha256.Sum256([]byte(pod.Namespace + "/" + pod.Name + "/" + pod.UID))
	return hex.EncodeToString(sum[:16]) + letterSuffix
}

// shownFile returns the path of the file of a status that its pod has got, by the name
// that it had on its way.
func (o *outbox) shownFile(name string) string {
	return filepath.Join(o.dir, strings.TrimSuffix(name, letterSuffix)+shownSuffix)
}

// loadLocked takes up, once, what an earlier run of the agent has accepted. o.mu must be
// held: until then it is not known which report is the newer one.
func (o *outbox) loadLocked() error {
	if o.loaded {
		return nil
	}
	entries, err := os.ReadDir(o.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read kept statuses: %w", err)
	}
	o.loaded = true
	for _, e := range entries {
		path := filepath.Join(o.dir, e.Name())
		s, err := read(path)
		if err != nil {
			// Half written, and so never accepted, or no file of ours.
			o.log.Warn("kept status left out", "path", path, "error", err)
			continue
		}
		switch name := fileOf(s.Pod); {
		case e.Name() == name:
			o.setLetterLocked(name, s)
		case s.Made.Boot != o.boot: // every sandbox since is another
			o.remove(path)
		default:
			// Which mirror a static pod had is not known: that which the watch shows gets
			// the status once more.
			o.shown[name] = &shown{status: s, uid: protocol.UID(s.Pod.UID), lost: time.Now()}
		}
	}
	return nil
}

// read reads a kept status.
func read(path string) (s status, err error) {
	base, suffix := filepath.Base(path), filepath.Ext(path)
	if suffix != letterSuffix && suffix != shownSuffix {
		return s, errors.New("not named as a kept status is")
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return s, err
	}
	if strings.TrimSuffix(fileOf(s.Pod), letterSuffix) != strings.TrimSuffix(base, suffix) {
		return s, fmt.Errorf("it is of pod %s/%s, whose file has another name", s.Pod.Namespace, s.Pod.Name)
	}
	return s, nil
}

func (o *outbox) write(name string, raw []byte) error {
	if err := os.MkdirAll(o.dir, 0o700); err != nil {
		return err
	}
	path := filepath.Join(o.dir, name)
	if err := os.WriteFile(path+".new", raw, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// forgetShownLocked forgets the status that a pod got: the pod is gone. o.mu must be held.
func (o *outbox) forgetShownLocked(name string) {
	delete(o.shown, name)
	o.remove(o.shownFile(name))
}

func (o *outbox) remove(path string) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		o.log.Warn("kept status not removed: it is taken up once more", "path", path, "error", err)
	}
}
