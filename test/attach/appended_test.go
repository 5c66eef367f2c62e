package attach_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/attach/node/ready"
	"github.com/tenure-ipam/tenure/test/fleet"
)

// chain appends a plugin to the file that the runtime takes, as service meshes do: by a file of
// another name that is renamed.
func (n *installing) chain(plugin map[string]any) {
	n.t.Helper()
	text, err := os.ReadFile(n.installed())
	must(n.t, err)
	var list map[string]any
	must(n.t, json.Unmarshal(text, &list))
	list["plugins"] = append(list["plugins"].([]any), plugin)
	text, err = json.MarshalIndent(list, "", "    ")
	must(n.t, err)
	must(n.t, os.WriteFile(n.installed()+".tmp", text, 0o644))
	must(n.t, os.Rename(n.installed()+".tmp", n.installed()))
}

// has waits until the runtime's file is there and runs these plugins, and returns its text.
func (n *installing) has(kinds ...string) (text string) {
	n.t.Helper()
	fleet.Eventually(n.t, waitLimit, func() error {
		raw, err := os.ReadFile(n.installed())
		if err != nil {
			return err
		}
		var list struct{ Plugins []struct{ Type string } }
		if err := json.Unmarshal(raw, &list); err != nil {
			return err
		}
		var got []string
		for _, p := range list.Plugins {
			got = append(got, p.Type)
		}
		if text = string(raw); strings.Join(got, " ") != strings.Join(kinds, " ") {
			return fmt.Errorf("the runtime's file runs %q; want %q", got, kinds)
		}
		return nil
	})
	return text
}

// TestAppendedPluginIsRun: a plugin that another program has appended to the file outlasts that
// the file was away. The runtime runs it behind tenure-attach, with its result, at every verb.
// When the default network's chain comes to have it too, it is taken out, and the node is told.
func TestAppendedPluginIsRun(t *testing.T) {
	c := useCluster(t)
	// Events are of a Node. When its agent has ended, nobody is to wait for it.
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "appended"}}
	must(t, c.client.Create(t.Context(), object))
	t.Cleanup(func() { must(t, c.client.Delete(context.WithoutCancel(t.Context()), object)) })
	n := newInstalling(c, "appended")
	n.onDisk("10-base.conflist", n.bridge("base", 7, true))
	n.becomes(n.offer(n.path("conf", "10-base.conflist")))
	n.chain(n.plugin(nil))
	must(t, os.Remove(n.path("conf", "10-base.conflist")))
	n.becomes("")
	n.onDisk("10-base.conflist", n.bridge("base", 7, true))
	text := n.has("tenure-attach", "recorder")

	at := n.newPod(c, c.namespace(), "meshed", "")
	result, err := n.cni.Add(t.Context(), text, at)
	must(t, err)
	must(t, n.cni.Check(t.Context(), text, at))
	must(t, n.cni.Del(t.Context(), text, at))
	for _, r := range n.called("ADD tenure eth0", "CHECK tenure eth0", "DEL tenure eth0") {
		var prev struct{ IPs []struct{ Address string } }
		must(t, json.Unmarshal(encoded(t, r.Stdin["prevResult"]), &prev))
		if len(result.IPs) != 2 || len(prev.IPs) != 2 || prev.IPs[0].Address != result.IPs[0].Address.String() {
			t.Errorf("%s: it got %v; want the default network's %v", r.Verb, prev, result.IPs)
		}
	}

	meshed := n.bridge("base", 7, true)
	meshed["plugins"] = append(meshed["plugins"].([]any), n.plugin(nil))
	n.onDisk("10-base.conflist", meshed)
	n.has("tenure-attach")
	fleet.Event(t, c.client, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.program.Name}}, ready.ReasonRefused, `"recorder"`)
}
