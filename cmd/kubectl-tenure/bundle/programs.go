package bundle

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
)

// Tenure's programs that run in a cluster: the names of their containers, and of their pods by
// their label app.kubernetes.io/name.
const (
	agentName      = "tenured"
	controllerName = "tenure-controller"
	hotplugName    = "tenure-hotplug" // its container has another name, and no metrics
)

// programs are the pods of Tenure's own.
type programs struct {
	all []corev1.Pod
	uid map[types.UID]bool
}

// findPrograms finds Tenure's own pods.
func (b *bundle) findPrograms(into *programs) []part {
	if b.namespace != "" {
		return nil
	}
	namespace := b.API.RegistrationNamespace
	return []part{{"pods of agents and controllers, with their logs and metrics", "list pods in namespace " + namespace, func(ctx context.Context) error {
		all, err := session.ListAll(ctx, patient{b.Client}, &corev1.PodList{}, func(l *corev1.PodList) []corev1.Pod { return l.Items }, client.InNamespace(namespace))
		if err != nil {
			return err
		}
		into.all, into.uid = slices.DeleteFunc(all, func(o corev1.Pod) bool { return programOf(&o) == "" }), map[types.UID]bool{}
		for i := range into.all {
			into.uid[into.all[i].UID] = true
		}
		return nil
	}}}
}

// programOf returns which program a pod runs, "" if none of Tenure's.
func programOf(o *corev1.Pod) string {
	switch name := o.Labels["app.kubernetes.io/name"]; name {
	case agentName, controllerName, hotplugName:
		return name
	}
	return ""
}

// ofPrograms are the logs and metrics of Tenure's pods.
func (b *bundle) ofPrograms(ours *programs) (all []part) {
	for i := range ours.all {
		o := &ours.all[i]
		if programOf(o) != controllerName && len(b.nodes) > 0 && !slices.Contains(b.nodes, o.Spec.NodeName) {
			continue
		}
		for _, c := range slices.Concat(o.Status.InitContainerStatuses, o.Status.ContainerStatuses) {
			if c.State.Running != nil || c.State.Terminated != nil {
				all = append(all, b.log(o, c.Name, false))
			}
			if c.RestartCount > 0 && c.LastTerminationState.Terminated != nil {
				all = append(all, b.log(o, c.Name, true))
			}
			if c.Name == programOf(o) && c.State.Running != nil {
				all = append(all, b.metricsOf(o))
			} else if c.Name == programOf(o) {
				all = append(all, notRunning(o, c))
			}
		}
	}
	return all
}

// notRunning is what cannot be had of a program that does not run.
func notRunning(o *corev1.Pod, c corev1.ContainerStatus) part {
	return part{"metrics of " + o.Name, "", func(context.Context) error {
		why := "it does not run"
		if w := c.State.Waiting; w != nil {
			why += ": " + w.Reason + " " + w.Message
		}
		return fmt.Errorf("on node %s %s", o.Spec.NodeName, why)
	}}
}

// log is the log of a container, or of the one before it.
func (b *bundle) log(o *corev1.Pod, container string, previous bool) part {
	name := o.Name + "." + container
	if previous {
		name += ".previous"
	}
	return part{"log of " + name + " on node " + o.Spec.NodeName, "get pods/log in namespace " + o.Namespace, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		opts := &corev1.PodLogOptions{Container: container, Previous: previous}
		if !previous { // of the one before all counts: it has ended
			opts.SinceSeconds = new(int64(max(1, b.since.Seconds())))
		}
		from, err := b.pods.Pods(o.Namespace).GetLogs(o.Name, opts).Stream(ctx)
		if err != nil {
			return err
		}
		defer from.Close()
		tail := &tail{most: int(b.limit)}
		_, err = io.Copy(tail, from)
		if text := tail.text(); err == nil || len(text) > 0 {
			if err := b.out.add("logs/"+name+".log", []byte(b.redact.scrub(text))); err != nil {
				return err
			}
		}
		return err
	}}
}

// A tail keeps the last bytes that are written to it, from the begin of a line on.
type tail struct {
	most int
	kept []byte
	lost int64
}

// Write implements [io.Writer].
func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if more := len(t.kept) - t.most; more > t.most { // not for every write
		t.drop(more)
	}
	return len(p), nil
}

func (t *tail) drop(n int) {
	t.lost += int64(n)
	t.kept = append(t.kept[:0], t.kept[n:]...)
}

// text returns what is kept, and says if something is not.
func (t *tail) text() string {
	if more := len(t.kept) - t.most; more > 0 {
		t.drop(more)
	}
	if t.lost == 0 {
		return string(t.kept)
	}
	if i := bytes.IndexByte(t.kept, '\n'); i >= 0 {
		t.drop(i + 1)
	}
	return fmt.Sprintf("(%d bytes before this are left out: --limit-bytes)\n%s", t.lost, t.kept)
}

// versionsView is which versions run.
type versionsView struct {
	Time       metav1.Time    `json:"time"` // by the API server's clock
	Client     string         `json:"kubectlTenure"`
	Kubernetes string         `json:"kubernetes,omitempty"`
	Images     map[string]int `json:"images,omitempty"` // how many containers run each
}

// addVersions adds which versions run.
func (b *bundle) addVersions(ours *programs) error {
	v := versionsView{Time: metav1.NewTime(b.Now().UTC()), Client: b.version, Images: map[string]int{}}
	if server, err := b.discover.ServerVersion(); err != nil {
		b.parts.end(part{name: "version of Kubernetes", right: "get /version"}, err)
	} else {
		v.Kubernetes = server.GitVersion
	}
	for i := range ours.all {
		for _, c := range ours.all[i].Status.ContainerStatuses {
			v.Images[c.Name+" "+c.Image+" "+c.ImageID]++
		}
	}
	return b.addYAML("versions.yaml", v)
}

// stores is what agents say of their stores, by their nodes.
type stores struct {
	mu  sync.Mutex
	all map[string]string
}
