package moving

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
)

// picky is an API server that refuses to have some definitions written.
type picky struct {
	client.Client
	refuses map[string]error // by name
	passes  bool             // a dry run of them
	written []string
}

func (p *picky) Patch(_ context.Context, o client.Object, _ client.Patch, options ...client.PatchOption) error {
	dry := len((&client.PatchOptions{}).ApplyOptions(options).DryRun) > 0
	if err := p.refuses[o.GetName()]; err != nil && !(dry && p.passes) {
		return err
	}
	if !dry {
		p.written = append(p.written, o.GetName())
	}
	return nil
}

// threeDefinitions returns a report on one segment with three definitions, the last of which is
// written in a way that no program can switch, if odd.
func threeDefinitions(odd bool) (moveReport, map[string]nad.NetworkAttachmentDefinition) {
	objects := map[string]nad.NetworkAttachmentDefinition{}
	for _, name := range []string{"a", "b", "c"} {
		o := nad.NetworkAttachmentDefinition{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		o.Spec.Config = `{"ipam":{"type":"whereabouts"}}`
		if odd && name == "c" {
			o.Spec.Config = `{"ipam":{"type":"where\u0061bouts"}}`
		}
		objects["ns/"+name] = o
	}
	return moveReport{Segments: []moveSegment{{Switch: []string{"ns/a", "ns/b", "ns/c"}}}}, objects
}

// TestRehearse: a definition that cannot be switched is in the way of its segment before any other
// of it is switched. Without --apply the server is not asked.
func TestRehearse(t *testing.T) {
	no := errors.New("a policy forbids it")
	for _, tt := range []struct {
		name  string
		apply bool
		odd   bool
		err   error // of b
		want  string
	}{
		{"all well", true, false, nil, ""},
		{"refused by the server", true, false, no, "definition ns/b cannot be switched: a policy forbids it"},
		{"a report asks nobody", false, false, no, ""},
		{"a webhook without dry runs tells nothing", true, false, errors.New(`admission webhook "w" does not support dry run`), ""},
		{"by hand alone", false, true, nil, `definition ns/c cannot be switched: the type is not written as "whereabouts": switch it by hand`},
	} {
		server := &picky{refuses: map[string]error{"b": tt.err}}
		m := moving{Session: &session.Session{Client: server}, from: "whereabouts", to: "tenure", apply: tt.apply}
		report, objects := threeDefinitions(tt.odd)
		m.rehearse(t.Context(), &report, objects)
		if got := strings.Join(report.Segments[0].InTheWay, "; "); got != tt.want || len(server.written) > 0 {
			t.Errorf("%s: in the way is %q, written %q; want %q and nothing", tt.name, got, server.written, tt.want)
		}
	}
}

// TestSwitchAllSaysWhatIsLeft: where the server refuses one although a dry run was allowed, it is
// said what was switched and what is left.
func TestSwitchAllSaysWhatIsLeft(t *testing.T) {
	server := &picky{refuses: map[string]error{"b": errors.New("the disk is full")}, passes: true}
	m := moving{Session: &session.Session{Client: server, Stderr: io.Discard}, from: "whereabouts", to: "tenure", apply: true}
	report, objects := threeDefinitions(false)
	m.rehearse(t.Context(), &report, objects)
	if way := report.Segments[0].InTheWay; len(way) > 0 {
		t.Fatalf("in the way is %q", way)
	}
	err := m.switchAll(t.Context(), report.Segments[0].Switch, objects, "Tenure")
	if err == nil || !strings.Contains(err.Error(), "definition ns/b: the disk is full; switched were ns/a; left are ns/b, ns/c") {
		t.Errorf("it says %v", err)
	}
}

// TestManifestKeeps: the manifest that is printed has what whoever wrote the definition gave it,
// and nothing that the API server added.
func TestManifestKeeps(t *testing.T) {
	o := nad.NetworkAttachmentDefinition{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "lan", UID: "u", ResourceVersion: "7", Generation: 3, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
		Labels:      map[string]string{"app": "lan"},
		Annotations: map[string]string{"k8s.v1.cni.cncf.io/resourceName": "intel.com/sriov", v1alpha1.AnnotationDomain: "blue", corev1.LastAppliedConfigAnnotation: "{}"},
	}}
	o.Spec.Config = `{"ipam":{"type":"whereabouts"}}`
	text, err := manifestOf(o, o.Spec.Config)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := yaml.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	want := `annotations:
  k8s.v1.cni.cncf.io/resourceName: intel.com/sriov
  tenure.dev/domain: blue
labels:
  app: lan
name: lan
namespace: ns
`
	if metadata, _ := yaml.Marshal(got["metadata"]); string(metadata) != want {
		t.Errorf("metadata is\n%s\nwant\n%s", metadata, want)
	}
	if o.Annotations[corev1.LastAppliedConfigAnnotation] == "" {
		t.Error("the object itself was changed")
	}
}
