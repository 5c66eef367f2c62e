package ready

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/tenure-ipam/tenure/attach/plan"
)

// Service meshes chain their plugin into the file that the runtime takes first: they append an
// entry to its list of plugins. What they have appended is kept, whatever else is written there.

// A record is what the Keeper has to know when its file is not there.
type record struct {
	// Name is that of the file.
	Name string `json:"name,omitempty"`
	// Own are the types of the plugins that the Keeper itself has put into the file.
	Own []string `json:"own"`
	// Others are the plugins that other programs have appended to these.
	Others []appended `json:"others,omitempty"`
	// There says that the file was there: if it is not, another program has taken it away.
	There bool `json:"there"`
}

// appended is the configuration of a plugin of a list.
type appended struct{ json.RawMessage }

// kind returns the plugin's type, empty where it has none.
func (a appended) kind() string {
	var p struct {
		Type string `json:"type"`
	}
	_ = json.Unmarshal(a.RawMessage, &p) // then it has none
	return p.Type
}

// pluginsOf returns the plugins of a list; ok is false where text is no list.
func pluginsOf(text []byte) (all []appended, ok bool) {
	var list struct {
		Plugins []appended `json:"plugins"`
	}
	err := json.Unmarshal(text, &list)
	return list.Plugins, err == nil && list.Plugins != nil
}

// kindsOf returns the types of plugins.
func kindsOf(all []appended) (kinds []string) {
	for _, a := range all {
		kinds = append(kinds, a.kind())
	}
	return kinds
}

// split parts the plugins in a file into those of others that are behind tenure-attach and those
// that are ahead of it. own are the types of the Keeper's own plugins: of each so many are its own.
// ok is false where tenure-attach is not among them: then the file is somebody else's.
func split(all []appended, own []string) (behind, ahead []appended, ok bool) {
	own = slices.Clone(own)
	for _, a := range all {
		kind := a.kind()
		i := slices.Index(own, kind)
		switch {
		case i >= 0:
			own = slices.Delete(own, i, i+1)
			ok = ok || kind == plan.PluginType
		case ok:
			behind = append(behind, a)
		default:
			ahead = append(ahead, a)
		}
	}
	return behind, ahead, ok
}

// either returns the types of which a or b has some, each as often as the one that has it more
// often.
func either(a, b []string) []string {
	all := slices.Clone(a)
	for _, kind := range a {
		if i := slices.Index(b, kind); i >= 0 {
			b = slices.Delete(slices.Clone(b), i, i+1)
		}
	}
	return append(all, b...)
}

// refusal says why a plugin of another program is not kept, empty if it is. chain are the types of
// those that the default network runs.
func refusal(a appended, chain []string) string {
	switch kind := a.kind(); {
	case kind == "":
		return "it names no type"
	case kind == plan.PluginType:
		return "it would attach the pod a second time"
	case slices.Contains(chain, kind):
		return fmt.Sprintf("the default network runs %s itself, and it would run twice for each pod: have it appended to one of the two files alone", kind)
	}
	return ""
}

// compose returns the list in source with others behind its own plugins.
func compose(source []byte, others []appended) ([]byte, error) {
	if len(others) == 0 {
		return source, nil
	}
	var list map[string]json.RawMessage
	if err := json.Unmarshal(source, &list); err != nil {
		return nil, err
	}
	plugins, ok := pluginsOf(source)
	if !ok {
		return nil, errors.New("it is a single configuration: nothing can be appended to it")
	}
	text, err := json.Marshal(append(plugins, others...))
	if err != nil {
		return nil, err
	}
	list["plugins"] = text
	return json.MarshalIndent(list, "", "  ")
}

// same reports whether two texts say the same: whoever edits a file may write it in another form.
func same(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}
