package ready

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tenure-ipam/tenure/attach/plan"
	"github.com/tenure-ipam/tenure/ipam/atomicfile"
)

// The reasons of the Events about the node.
const (
	// ReasonTaken: another program has removed, renamed or overwritten the configuration.
	ReasonTaken = "CNIConfigurationTaken"
	// ReasonNotFirst: the runtime takes another file.
	ReasonNotFirst = "CNIConfigurationNotFirst"
	// ReasonRefused: what another program has put into the configuration is not kept.
	ReasonRefused = "CNIPluginRefused"
)

// tellEvery is how often the same is told: Events last for an hour, and of one object an API
// server takes only so many.
const tellEvery = 10 * time.Minute

// tell tells whoever looks after the node, unless that was told a short time ago.
func (k *Keeper) tell(reason, message string) {
	key := reason + " " + message
	if at, ok := k.warned[key]; ok && time.Since(at) < tellEvery {
		return
	}
	if k.warn(reason, message) {
		k.warned[key] = time.Now()
		k.log.Warn("event about the node", "reason", reason, "message", message)
	}
}

// Rival says what keeps the runtime from the configuration, or did so last; empty if nothing is
// known. Safe for concurrent use.
func (k *Keeper) Rival() string {
	if before := k.Before(); before != "" {
		return k.notFirst(before)
	}
	if r := k.rival.Load(); r != nil && time.Since(r.at) < rivalLasts {
		return r.did
	}
	return ""
}

// rivalLasts is how long what another program did to the file may be why pods are without it.
const rivalLasts = time.Hour

// A rival is what another program did to the file, and when.
type rival struct {
	did string
	at  time.Time
}

// install has the runtime find the configuration, with what others have appended to it.
func (k *Keeper) install(o opinion) error {
	there, err := os.ReadFile(k.path())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	source, isList := pluginsOf(o.text)
	next := record{Name: k.cfg.Name, Own: kindsOf(source), Others: k.record.Others, There: true}
	if !isList { // what is appended to a single configuration is a list of another name
		next.Own, next.Others = []string{plan.PluginType}, nil
	}
	switch plugins, ok := pluginsOf(there); {
	case err != nil:
		if k.record.There {
			k.taken(k.whereabouts())
		}
	case !ok && !json.Valid(there) && k.garbled == 0:
		k.garbled++ // somebody is writing it in place
		return nil
	case ok && isList:
		behind, ahead, ours := split(plugins, either(next.Own, k.record.Own))
		if !ours && k.record.There {
			k.taken("overwritten it with a configuration without tenure-attach")
		}
		if !ours {
			break
		}
		next.Others = behind
		for _, a := range ahead {
			k.refuse(a, "it stands ahead of tenure-attach, which makes the interface: append it")
		}
	case k.record.There && (appended{there}).kind() != plan.PluginType: // a single configuration is the plugin's own
		k.taken("overwritten it with what is no list of plugins")
	}
	k.garbled = 0
	next.Others = k.accepted(next.Others, o)
	text, err := compose(o.text, next.Others)
	if err != nil {
		return fmt.Errorf("%s: %w", k.cfg.Source, err)
	}
	if there == nil || !same(there, text) {
		if err := k.write(k.path(), filepath.Join(k.cfg.Dir, k.temporary()), text); err != nil {
			return err
		}
	}
	if k.written, err = os.Lstat(k.path()); err != nil {
		return err
	}
	return k.remember(next)
}

// refuseAnothers returns an error where the file is another program's: it does not call
// tenure-attach, and the Keeper has never had a file of that name.
func (k *Keeper) refuseAnothers() error {
	text, err := os.ReadFile(k.path())
	if errors.Is(err, fs.ErrNotExist) || k.record.There {
		return nil
	}
	if err != nil {
		return err
	}
	plugins, _ := pluginsOf(text)
	if slices.Contains(kindsOf(append(plugins, appended{text})), plan.PluginType) {
		return nil
	}
	said := k.path() + ": the file of that name is another program's, and is left as it is: the runtime does not call tenure-attach"
	k.rival.Store(&rival{said, time.Now()})
	k.tell(ReasonTaken, said+": give the agent another --cni-conf-name, such as 00-tenure.conflist, or remove the file if nobody needs it")
	return errors.New(said)
}

// accepted returns those of others' plugins that are kept.
func (k *Keeper) accepted(others []appended, o opinion) (kept []appended) {
	if len(others) == 0 {
		return nil
	}
	// Where it cannot be told what the default network runs, everything is kept.
	step, _ := plan.DefaultNetwork(o.conf, o.defined, filesOf(o.conf))
	plugins, _ := pluginsOf(step.List)
	for _, a := range others {
		if why := refusal(a, kindsOf(plugins)); why != "" {
			k.refuse(a, why)
		} else {
			kept = append(kept, a)
		}
	}
	return kept
}

// refuse says that a plugin of another program is taken out of the file.
func (k *Keeper) refuse(a appended, why string) {
	k.tell(ReasonRefused, fmt.Sprintf("%s: the plugin %q that another program has put there is taken out again: %s", k.path(), a.kind(), why))
}

// putAway takes the configuration away from the runtime, and remembers what others have appended.
func (k *Keeper) putAway() error {
	next := k.record
	next.There = false
	text, err := os.ReadFile(k.path())
	if errors.Is(err, fs.ErrNotExist) {
		return k.remember(next)
	}
	if plugins, ok := pluginsOf(text); ok {
		if behind, _, ours := split(plugins, k.record.Own); ours {
			next.Others = behind
		}
	}
	if err := k.remember(next); err != nil {
		return err
	}
	return atomicfile.Remove(k.path())
}

// taken says what another program has done to the file.
func (k *Keeper) taken(what string) {
	k.lost.Inc()
	said := fmt.Sprintf("%s: another program has %s", k.path(), what)
	k.rival.Store(&rival{said, time.Now()})
	do := "find out which program it is, and have it leave the file alone"
	if strings.Contains(what, ".cilium_bak") {
		do = "Cilium does so unless it is told cni.exclusive=false"
	}
	k.tell(ReasonTaken, said+". It is put back each time, and pods that start in between get the default network alone: two programs fight over it: "+do)
}

// whereabouts says what has become of the file.
func (k *Keeper) whereabouts() string {
	entries, _ := os.ReadDir(k.cfg.Dir) // what cannot be read is not said to be there
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || e.IsDir() || e.Name() == k.cfg.Name {
			continue
		}
		if k.written != nil && os.SameFile(info, k.written) || k.written == nil && strings.HasPrefix(e.Name(), k.cfg.Name+".") {
			return "renamed it to " + e.Name()
		}
	}
	return "removed it"
}

// load reads what an earlier run of the agent has remembered.
func (k *Keeper) load() error {
	text, err := os.ReadFile(k.cfg.Record)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var r record
	if err := json.Unmarshal(text, &r); err != nil {
		return fmt.Errorf("%s: %w", k.cfg.Record, err)
	}
	// What an earlier version has written has no name.
	r.There = r.There && (r.Name == "" || r.Name == k.cfg.Name)
	k.record = r
	return nil
}

// remember keeps r over a restart of the agent.
func (k *Keeper) remember(r record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if before, err := json.Marshal(k.record); err == nil && string(before) == string(text) {
		return nil
	}
	if err := atomicfile.MakeDir(filepath.Dir(k.cfg.Record)); err != nil {
		return err
	}
	if err := k.write(k.cfg.Record, k.cfg.Record+".new", text); err != nil {
		return err
	}
	k.record = r
	return nil
}

// write makes text the file's, by way of temp.
func (k *Keeper) write(path, temp string, text []byte) error {
	if err := atomicfile.Remove(temp); err != nil {
		return err
	}
	return atomicfile.Create(path, temp, text, func(string) {})
}
