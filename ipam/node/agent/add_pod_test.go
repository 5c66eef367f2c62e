package agent

import (
	"context"
	"testing"

	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// watchedPod is a pod that the watch has, and counts live reads of it.
type watchedPod struct {
	Pods
	pod  Pod
	live int
}

func (w *watchedPod) Pod(context.Context, string, string, protocol.UID) (Pod, protocol.Outcome, error) {
	return w.pod, protocol.Done, nil
}

func (w *watchedPod) ReadPod(context.Context, string, string) (Pod, protocol.Outcome, error) {
	w.live++
	return w.pod, protocol.Done, nil
}

// TestReadsOfAPodOnAnAdd: a pod is read live where its annotation, as the watch has it,
// does not select the interface, since it may be hot-plugged; not for a network that
// the meta-plugin says is the configuration's. That word changes nothing else.
func TestReadsOfAPodOnAnAdd(t *testing.T) {
	const config = `{"cniVersion":"1.0.0","name":"lan","type":"macvlan","ipam":{"type":"tenure","pool":"lan"}}`
	const pod = "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=p"
	for name, tt := range map[string]struct {
		ifName, args string
		live         int
		claim        string
	}{
		"selected":                        {"net1", pod + ";K8S_POD_UID=u1", 0, "c"},
		"the default network":             {"eth0", pod + ";K8S_POD_UID=u1", 0, ""},
		"not selected":                    {"net2", pod + ";K8S_POD_UID=u1", 1, ""},
		"of the configuration":            {"net2", pod + ";K8S_POD_UID=u1;" + poolspec.ArgUnselected + "=1", 0, ""},
		"of the configuration, of nobody": {"net2", pod + ";" + poolspec.ArgUnselected + "=1", 1, ""},
		"selected, whatever is said":      {"net1", pod + ";K8S_POD_UID=u1;" + poolspec.ArgUnselected + "=1", 0, "c"},
	} {
		t.Run(name, func(t *testing.T) {
			w := &watchedPod{pod: Pod{
				PodRef:   protocol.PodRef{Namespace: "ns", Name: "p", UID: "u1"},
				Networks: `[{"name":"lan","ipam-claim-reference":"c"}]`,
			}}
			a := assemble(&base{cl: Cluster{Pods: w}})
			conf, err := poolspec.ParseConfig([]byte(config), tt.args)
			if err != nil {
				t.Fatal(err)
			}
			add := &addCall{req: agentapi.Request{IfName: tt.ifName}, conf: conf}
			if err := a.selectPod(t.Context(), add, false); err != nil {
				t.Fatal(err)
			}
			if w.live != tt.live || add.sel.Claim != tt.claim {
				t.Errorf("%d live reads and claim %q; want %d and %q", w.live, add.sel.Claim, tt.live, tt.claim)
			}
		})
	}
}
