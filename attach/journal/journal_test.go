package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/attach/plan"
	"github.com/tenure-ipam/tenure/ipam/atomicfile"
	"github.com/tenure-ipam/tenure/ipam/lean/plainjson/plainjsontest"
)

// boot is the boot that the journals of these tests are of.
const boot = "b1"

func key(n int) Key {
	return Key{ContainerID: fmt.Sprintf("c%d", n), Network: "tenure", IfName: "eth0"}
}

func head(n int) Head {
	step := func(name, network string) plan.Step {
		return plan.Step{Name: name, IfName: "eth0", Network: network, List: json.RawMessage(`{"cniVersion":"1.1.0","plugins":[]}`)}
	}
	return Head{Key: key(n), Netns: "/run/netns/x", Boot: boot, Plan: plan.Plan{
		Pod: facts.PodRef{Namespace: "ns", Name: "pod"}, Steps: []plan.Step{step("d", "d"), step("ns/a", "a"), step("ns/b", "b")},
	}}
}

func report(name string) facts.Report {
	return facts.Report{Pod: facts.PodRef{Namespace: "ns", Name: name}, ContainerID: "c"}
}

// TestKeyIn: the name of a journal says which attachment of a network it is of, also where the
// container's ID or the interface has periods, and that it is of another network.
func TestKeyIn(t *testing.T) {
	for _, k := range []Key{{"c1", "tenure", "eth0"}, {"c.1", "a.b", "e"}, {"c", "n", "eth0.100"}, {"0", "", "x"}} {
		got, ok := KeyIn(k.Network, k.FileName())
		if !ok || got.FileName() != k.FileName() || got.Network != k.Network {
			t.Errorf("KeyIn(%q, %q) = %+v, %t; want %+v", k.Network, k.FileName(), got, ok, k)
		}
		for network, name := range map[string]string{
			"renamed": k.FileName(), k.Network: k.FileName() + "0", k.Network + " ": k.FileName(), k.Network + "1": "", k.Network + "2": "c1", k.Network + "3": "c1.eth0",
		} {
			if got, ok := KeyIn(network, name); ok {
				t.Errorf("KeyIn(%q, %q) = %+v; want none", network, name, got)
			}
		}
	}
}

// whole writes the journal of an ADD that succeeded.
func whole(t *testing.T, d Dir, n int) {
	t.Helper()
	log, err := d.Create(head(n))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	for i := range 3 {
		check(t, log.Began(i))
		check(t, log.Done(i, fmt.Appendf(nil, `{"n":%d}`, i)))
	}
	check(t, log.Answer(report("p")))
	check(t, d.MarkUnsent(key(n)))
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestPlanThatIsTooLarge is refused while nothing has been done: a journal that could not
// be read would undo nothing.
func TestPlanThatIsTooLarge(t *testing.T) {
	d := Dir{Path: t.TempDir()}
	h := head(1)
	h.Plan.Steps[0].List = json.RawMessage(`{"x":"` + strings.Repeat("y", maxHead) + `"}`)
	if log, err := d.Create(h); err == nil || !strings.Contains(err.Error(), "selects too many networks") {
		t.Errorf("Create of a plan of more than %d bytes: %v, %v", maxHead, log, err)
	}
	const deepest = 10_000 // that encoding/json reads
	h.Plan.Steps[0].List = json.RawMessage(strings.Repeat("[", deepest) + strings.Repeat("]", deepest))
	if log, err := d.Create(h); err == nil {
		t.Errorf("Create of a plan that nests too deeply: %v; want an error", log)
	}
	if _, err := d.Read(h.Key); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its journal: %v; want none", err)
	}
}

func mustRead(t *testing.T, d Dir, k Key) *Entry {
	t.Helper()
	e, err := d.Read(k)
	check(t, err)
	return e
}

// text is the file of a journal.
func text(t *testing.T, d Dir, k Key) (path string, content []byte) {
	t.Helper()
	path, err := d.file(k)
	check(t, err)
	content, err = os.ReadFile(path)
	check(t, err)
	return path, content
}

// TestLineThatIsTooLarge is refused: with it, the whole journal would not be read.
func TestLineThatIsTooLarge(t *testing.T) {
	d := Dir{Path: t.TempDir()}
	log, err := d.Create(head(1))
	check(t, err)
	for step := range 2 { // as it was created, and as it was opened again
		check(t, log.Began(step))
		info, err := log.f.Stat()
		check(t, err)
		if log.size != int(info.Size()) {
			t.Errorf("its size: %d; want %d", log.size, info.Size())
		}
		log.size = maxSize - 20
		if err := log.Done(step, []byte(`{}`)); err == nil {
			t.Error("a line too much: no error")
		}
		check(t, log.Close())
		e, again, err := d.Open(key(1))
		check(t, err)
		if !e.Steps[step].Began || e.Steps[step].Result != nil || e.Lost != "" {
			t.Errorf("the journal: %+v, lost %q; want what it had", e.Steps, e.Lost)
		}
		log = again
	}
	check(t, log.Close())
}

func TestJournalTellsHowFarAnAddCame(t *testing.T) {
	d := Dir{filepath.Join(t.TempDir(), "state")}
	if _, err := d.Read(key(1)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no journal: %v; want ErrNotExist", err)
	}
	log, err := d.Create(head(1))
	check(t, err)
	e := mustRead(t, d, key(1))
	want := &Entry{Head: head(1), Steps: make([]Step, 3)}
	want.Version = version
	if d := cmp.Diff(want, e); d != "" {
		t.Errorf("created (-want +got):\n%s", d)
	}
	check(t, log.Began(0))
	check(t, log.Done(0, []byte(`{"a":1}`)))
	check(t, log.Began(1))
	check(t, log.Close())
	e, log, err = d.Open(key(1))
	check(t, err)
	want.Steps = []Step{{Began: true, Result: json.RawMessage(`{"a":1}`)}, {Began: true}, {}}
	if d := cmp.Diff(want, e); d != "" {
		t.Errorf("in its second step (-want +got):\n%s", d)
	}
	if got := e.Begun(boot); !cmp.Equal(got, []int{0, 1}) {
		t.Errorf("begun: %v; want the first two", got)
	}
	if got := e.Begun("b2"); !cmp.Equal(got, []int{0, 1, 2}) {
		t.Errorf("begun, after another boot: %v; want all", got)
	}
	check(t, log.Undone(1))
	check(t, log.Done(0, []byte(`{"a":2}`)))
	check(t, log.Answer(report("p")))
	check(t, log.Close())
	e = mustRead(t, d, key(1))
	r := report("p")
	want.Steps = []Step{{Began: true, Result: json.RawMessage(`{"a":2}`)}, {Began: true, Undone: true}, {}}
	want.Answered, want.Report = true, &r
	if d := cmp.Diff(want, e); d != "" {
		t.Errorf("answered (-want +got):\n%s", d)
	}
	check(t, d.Remove(key(1)))
	check(t, d.Remove(key(1)))
	if _, err := d.Read(key(1)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removed: %v; want ErrNotExist", err)
	}
}

// TestCrashAnyPrefix cuts a journal at every byte, as a crash may: what is left of
// the head is damage, and what is left behind it means less, never something else.
// A writer goes on from there.
func TestCrashAnyPrefix(t *testing.T) {
	d := Dir{t.TempDir()}
	whole(t, d, 1)
	path, full := text(t, d, key(1))
	first := bytes.IndexByte(full, '\n') + 1
	known := 0 // how many steps have begun: grows with the prefix
	for n := range len(full) + 1 {
		check(t, os.WriteFile(path, full[:n], 0o600))
		e, err := d.Read(key(1))
		if n < first {
			var damaged *DamagedError
			if !errors.As(err, &damaged) || damaged.Path != path {
				t.Fatalf("%d bytes of the head: %v; want damage", n, err)
			}
			continue
		}
		if err != nil || e.Lost != "" {
			t.Fatalf("%d bytes: %v, lost %q", n, err, e.Lost)
		}
		begun := len(e.Begun(boot))
		if begun < known {
			t.Fatalf("%d bytes: %d steps have begun, fewer than of a shorter journal", n, begun)
		}
		known = begun
		if e.Answered != (n == len(full)) {
			t.Fatalf("%d bytes of %d: answered %v", n, len(full), e.Answered)
		}
		e, log, err := d.Open(key(1))
		check(t, err)
		check(t, errors.Join(log.Undone(2), log.Close()))
		if again := mustRead(t, d, key(1)); again.Lost != "" || !again.Steps[2].Undone || again.Answered != e.Answered {
			t.Fatalf("%d bytes, and a line more: %+v", n, again)
		}
	}
	if known != 3 {
		t.Errorf("%d steps have begun at the end; want 3", known)
	}
}

func TestHeadIsWrittenByHand(t *testing.T) {
	for _, h := range []Head{plainjsontest.Full[Head](t), {}} {
		plainjsontest.Written(t, h.body(), h)
	}
}

// TestDamageIsNotAbsence damages a journal in every way that a disk and an editor
// know.
func TestDamageIsNotAbsence(t *testing.T) {
	d := Dir{t.TempDir()}
	whole(t, d, 1)
	path, good := text(t, d, key(1))
	other := atomicfile.Seal(Head{Version: version, Key: key(2)}.body())
	flip := func(at int) []byte {
		bad := bytes.Clone(good)
		bad[at] ^= 1
		return bad
	}
	for name, content := range map[string][]byte{
		"empty": {}, "one bit of the head": flip(20), "zeros": make([]byte, len(good)), "another's": other,
		"not JSON": atomicfile.Seal([]byte("what")), "no head": atomicfile.Seal([]byte(`{"began":0}`)),
	} {
		check(t, os.WriteFile(path, content, 0o600))
		_, err := d.Read(key(1))
		damaged, ok := errors.AsType[*DamagedError](err)
		if !ok || errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v; want damage, and where", name, err)
			continue
		}
		aside, err := d.SetAside(damaged)
		check(t, err)
		if kept, err := os.ReadFile(aside); err != nil || !bytes.Equal(kept, content) {
			t.Errorf("%s: set aside: %q, %v; want the very bytes", name, kept, err)
		}
		if _, err := d.Read(key(1)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: after it was set aside: %v; want ErrNotExist", name, err)
		}
	}
	check(t, os.WriteFile(path, atomicfile.Seal([]byte(`{"version":2,"containerID":"c1","network":"tenure","ifName":"eth0"}`)), 0o600))
	if _, err := d.Read(key(1)); !errors.Is(err, errNewer) {
		t.Errorf("of a later version: %v; want errNewer", err)
	}
	if _, unread, err := d.List(time.Now()); err != nil || len(unread) != 1 {
		t.Errorf("List: %v, %v; want the one that does not read", unread, err)
	}
}

// TestDamageBehindTheHead: the plan is whole, how far it came is not known, so
// every step counts as begun.
func TestDamageBehindTheHead(t *testing.T) {
	d := Dir{t.TempDir()}
	log, err := d.Create(head(1))
	check(t, err)
	check(t, errors.Join(log.Began(0), log.Began(1), log.Undone(0), log.Close()))
	path, good := text(t, d, key(1))
	lines := bytes.SplitAfter(good, []byte("\n"))
	for name, line := range map[string][]byte{
		"a flipped bit": append([]byte("1"), lines[2][1:]...), "no such step": atomicfile.Seal([]byte(`{"began":3}`)),
		"below the first": atomicfile.Seal([]byte(`{"undone":-1}`)), "not JSON": atomicfile.Seal([]byte(`what`)),
	} {
		check(t, os.WriteFile(path, bytes.Join([][]byte{lines[0], lines[1], line, lines[3]}, nil), 0o600))
		e := mustRead(t, d, key(1))
		if !strings.HasPrefix(e.Lost, "line 3: ") || !cmp.Equal(e.Begun(boot), []int{1, 2}) {
			t.Errorf("%s: lost %q, begun %v; want line 3, and all but the one undone", name, e.Lost, e.Begun(boot))
		}
	}
}

func TestListSweepsWhatWritersLeft(t *testing.T) {
	d := Dir{t.TempDir()}
	if entries, unread, err := d.List(time.Now()); err != nil || len(entries)+len(unread) > 0 {
		t.Errorf("no directory: %v, %v, %v", entries, unread, err)
	}
	whole(t, d, 1)
	whole(t, d, 2)
	temp := filepath.Join(d.attachments(), "x.tmp")
	check(t, os.WriteFile(temp, nil, 0o600))
	entries, unread, err := d.List(time.Now().Add(2 * tempAge))
	if err != nil || len(unread) > 0 || len(entries) != 2 || entries[0].Key != key(1) || entries[1].Key != key(2) {
		t.Errorf("List: %v, %v, %v; want the two", entries, unread, err)
	}
	if _, err := os.Stat(temp); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what a writer left: %v; want it gone", err)
	}
}

// TestMarkOfAnEarlierReport: a report is as young as its call, also where a damaged journal
// has left a mark.
func TestMarkOfAnEarlierReport(t *testing.T) {
	d := Dir{t.TempDir()}
	whole(t, d, 1)
	old := time.Now().Add(-time.Hour)
	check(t, os.Chtimes(filepath.Join(d.unsent(), key(1).FileName()), old, old))
	path, _ := text(t, d, key(1))
	_, err := d.SetAside(&DamagedError{Path: path})
	check(t, err)
	whole(t, d, 1)
	if got, err := d.Unsent(time.Now().Add(-time.Minute), 9); err != nil || len(got) > 0 {
		t.Errorf("Unsent: %+v, %v; want none, as it may be on its way", got, err)
	}
}

func TestUnsentReports(t *testing.T) {
	d := Dir{t.TempDir()}
	now := time.Now()
	later := now.Add(time.Hour)
	if got, err := d.Unsent(later, 9); err != nil || len(got) > 0 {
		t.Errorf("no directory: %v, %v", got, err)
	}
	for n := range 3 {
		whole(t, d, n)
	}
	if got, err := d.Unsent(now.Add(-time.Hour), 9); err != nil || len(got) > 0 {
		t.Errorf("younger than asked for: %v, %v; want none", got, err)
	}
	got, err := d.Unsent(later, 2)
	if err != nil || len(got) != 2 || got[0].Key != key(0) || !cmp.Equal(got[0].Report, report("p")) {
		t.Errorf("Unsent: %+v, %v; want the first two", got, err)
	}
	check(t, d.Sent(key(0)))
	check(t, d.Sent(key(0)))
	check(t, d.Remove(key(1)))
	if got, err := d.Unsent(later, 9); err != nil || len(got) != 1 || got[0].Key != key(2) {
		t.Errorf("one sent, one gone: %+v, %v; want the third", got, err)
	}
	check(t, os.WriteFile(filepath.Join(d.unsent(), key(7).FileName()), nil, 0o600))
	if got, err := d.Unsent(later, 9); err != nil || len(got) != 1 {
		t.Errorf("a mark without a journal: %+v, %v", got, err)
	}
	if names, err := atomicfile.Names(d.unsent()); err != nil || len(names) != 1 {
		t.Errorf("marks: %v, %v; want one", names, err)
	}
	// A journal that cannot be read now: a directory stands for a disk that fails.
	check(t, d.Remove(key(2)))
	whole(t, d, 3)
	path, content := text(t, d, key(3))
	check(t, errors.Join(os.Remove(path), os.Mkdir(path, 0o700)))
	if got, err := d.Unsent(later, 9); err == nil || len(got) > 0 {
		t.Errorf("a journal that cannot be read now: %+v, %v; want an error", got, err)
	}
	check(t, errors.Join(os.Remove(path), os.WriteFile(path, content, 0o600)))
	if got, err := d.Unsent(later, 9); err != nil || len(got) != 1 {
		t.Errorf("when it can be read again: %+v, %v; want its report", got, err)
	}
	check(t, os.WriteFile(path, []byte("damaged"), 0o600))
	if got, err := d.Unsent(later, 9); err != nil || len(got) > 0 {
		t.Errorf("damaged: %+v, %v; want none", got, err)
	}
	if names, err := atomicfile.Names(d.unsent()); err != nil || len(names) > 0 {
		t.Errorf("marks: %v, %v; want none", names, err)
	}
}

func TestDefaultIsKept(t *testing.T) {
	d := Dir{filepath.Join(t.TempDir(), "state")}
	want := func(what, want string) {
		t.Helper()
		if got, err := d.Default("ns/net"); string(got) != want || err != nil {
			t.Errorf("%s: %s, %v; want %s", what, got, err, want)
		}
	}
	check(t, d.DropDefault())
	want("nothing kept", "")
	for _, list := range []string{`{"name":"a"}`, "{\n\"name\": \"b\"\n}"} {
		check(t, d.KeepDefault("ns/net", json.RawMessage(list)))
	}
	want("kept", `{"name":"b"}`)
	check(t, os.WriteFile(d.defaultFile(), []byte("x"), 0o600))
	if _, err := d.Default("ns/net"); err == nil {
		t.Error("damaged: no error")
	}
	check(t, d.KeepDefault("ns/net", json.RawMessage(`{"name":"b"}`)))
	want("kept again", `{"name":"b"}`)
	check(t, d.KeepDefault("ns/net2", json.RawMessage(`{"name":"b"}`)))
	want("another's", "")
	check(t, d.KeepDefault("ns/net", json.RawMessage(`{"name":"b"}`)))
	check(t, d.DropDefault())
	want("dropped", "")
}

// TestDefaultOfEarlierPlugins: they kept the list alone, and answer that the default
// network is not available where they find something else.
func TestDefaultOfEarlierPlugins(t *testing.T) {
	d := Dir{t.TempDir()}
	theirs := filepath.Join(d.Path, "default")
	check(t, os.WriteFile(theirs, atomicfile.Seal([]byte(`{"name":"b"}`)), 0o600))
	if got, err := d.Default("ns/net"); got != nil || err != nil {
		t.Errorf("%s, %v; want nothing: theirs does not say whose it is", got, err)
	}
	check(t, d.KeepDefault("ns/net", json.RawMessage(`{"name":"c"}`)))
	if _, err := os.Stat(theirs); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v; want nothing of theirs, which is old now, and nothing of ours in its place", err)
	}
}

func TestNamesThatAreNoFiles(t *testing.T) {
	d := Dir{t.TempDir()}
	for _, k := range []Key{{IfName: "eth0"}, {ContainerID: "c"}, {ContainerID: "../c", IfName: "e"}, {ContainerID: "c", IfName: "a/b"}} {
		if _, err := d.Create(Head{Key: k}); err == nil || !strings.Contains(err.Error(), "no file") {
			t.Errorf("%+v: %v; want it refused", k, err)
		}
	}
	for _, id := range []string{"", ".all", "a/b", ".."} {
		if _, err := d.Lock(t.Context(), id); err == nil || !strings.Contains(err.Error(), "no file") {
			t.Errorf("lock of %q: %v; want it refused", id, err)
		}
	}
}

// dieAt names the environment variable by which a test tells a copy of itself
// at which step to die.
const dieAt = "ATTACH_JOURNAL_TEST_DIE_AT"

// TestHelperWriter is not a test: TestKilledWriter runs it as the process to kill.
func TestHelperWriter(t *testing.T) {
	step, ok := os.LookupEnv(dieAt)
	if !ok {
		return
	}
	reached = func(s string) {
		if s == step {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	d := Dir{os.Getenv("ATTACH_JOURNAL_TEST_DIR")}
	log, err := d.Create(head(1))
	check(t, err)
	check(t, log.Sync())
	check(t, log.Began(0))
	check(t, log.Answer(report("p")))
	check(t, d.Remove(key(1)))
}

// TestKilledWriter kills a writer between any two steps: a journal is absent or
// whole, and the next writer goes on.
func TestKilledWriter(t *testing.T) {
	for step, want := range map[string]string{
		"created": "absent", "written": "absent", "renamed": "head", "synced": "head", "added": "began", "answered": "answered",
		"removed": "absent", "never": "absent",
	} {
		t.Run(step, func(t *testing.T) {
			d := Dir{filepath.Join(t.TempDir(), "state")}
			cmd := exec.Command(os.Args[0], "-test.run=^TestHelperWriter$")
			cmd.Env = append(os.Environ(), dieAt+"="+step, "ATTACH_JOURNAL_TEST_DIR="+d.Path)
			out, err := cmd.CombinedOutput()
			if killed := err != nil && err.Error() == "signal: killed"; killed != (step != "never") {
				t.Fatalf("writer: %v\n%s", err, out)
			}
			if got := stage(t, d); got != want {
				t.Errorf("the journal is %s; want %s", got, want)
			}
			whole(t, d, 1)
			if got := stage(t, d); got != "answered" {
				t.Errorf("after another writer it is %s", got)
			}
			entries, unread, err := d.List(time.Now().Add(2 * tempAge))
			if names, _ := atomicfile.Names(d.attachments()); err != nil || len(entries) != 1 || len(unread) > 0 || len(names) != 1 {
				t.Errorf("List: %d, %v, %v, of %q; want the journal alone", len(entries), unread, err, names)
			}
		})
	}
}

// stage says how far the journal of key(1) is.
func stage(t *testing.T, d Dir) string {
	t.Helper()
	e, err := d.Read(key(1))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "absent"
	case err != nil:
		t.Fatal(err)
		return ""
	case e.Answered:
		return "answered"
	case e.Steps[0].Began:
		return "began"
	default:
		return "head"
	}
}

// FuzzDecode: whatever a file holds, decode neither panics nor reads more than
// there is, and what it makes of a journal's lines stays so when one is added.
func FuzzDecode(f *testing.F) {
	line := atomicfile.Seal(head(1).body())
	short := atomicfile.Seal(Head{Version: 1, Key: key(1), Plan: plan.Plan{Steps: make([]plan.Step, 2)}}.body())
	f.Add(line)
	f.Add(line[:30])
	f.Add(append(short, atomicfile.Seal([]byte(`{"done":1,"result":{}}`))...))
	f.Add(append(short, atomicfile.Seal([]byte(`{"undone":1,"report":{},"answered":true}`))[:30]...))
	f.Fuzz(func(t *testing.T, text []byte) {
		e, size, err := decode(text)
		if err != nil {
			return
		}
		if size > len(text) || len(e.Steps) != len(e.Plan.Steps) {
			t.Fatalf("%d of %d bytes, %d of %d steps", size, len(text), len(e.Steps), len(e.Plan.Steps))
		}
		answered := atomicfile.Seal([]byte(`{"answered":true}`))
		again, _, err := decode(append(bytes.Clone(text[:size]), answered...))
		if err != nil || !again.Answered {
			t.Fatalf("a line more: %+v, %v", again, err)
		}
		again.Answered = e.Answered
		if d := cmp.Diff(e, again); d != "" {
			t.Fatalf("a line more changes others (-before +after):\n%s", d)
		}
	})
}
