package install

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/screen"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
)

// versionsView is which versions run, as json and yaml show it.
// docs/reference/kubectl-tenure.md has the fields.
type versionsView struct {
	Client      string        `json:"client"`
	Agents      []versionView `json:"agents"`
	Controllers []versionView `json:"controllers"`
	Warnings    []string      `json:"warnings,omitempty"`
}

// versionView is one version, and how many nodes or pods have it.
type versionView struct {
	Version string `json:"version"`
	Nodes   int    `json:"nodes,omitempty"` // of agents
	Pods    int    `json:"pods,omitempty"`  // of controllers
}

// NewVersion returns the verb version; version is that of this program.
func NewVersion(s *session.Session, version string) *cobra.Command {
	var o session.Output
	c := &cobra.Command{
		Use: "version", Short: "which versions run: client, agents, controllers",
		Long: `Prints the version of this program, of the agents with how many nodes have it, and of
the controllers: the tags of the images that their pods run. It warns of versions that are
not supported together: those that are more than one minor version apart. --version prints
that of this program alone, and asks no cluster.`,
		Args: session.None, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := session.OneOf("output", o.Format, "", "json", "yaml"); err != nil {
				return err
			}
			return versions(c.Context(), s, o, version)
		},
	}
	c.Flags().StringVarP(&o.Format, "output", "o", "", "what to write: json, yaml")
	return c
}

func versions(ctx context.Context, s *session.Session, o session.Output, version string) error {
	v := versionsView{Client: version, Agents: []versionView{}, Controllers: []versionView{}}
	err := s.Connect()
	var agents, controllers map[string]int
	if err == nil {
		agents, err = runningVersions(ctx, s, agentName)
	}
	if err == nil {
		controllers, err = runningVersions(ctx, s, controllerName)
	}
	for _, name := range slices.Sorted(maps.Keys(agents)) {
		v.Agents = append(v.Agents, versionView{Version: name, Nodes: agents[name]})
	}
	for _, name := range slices.Sorted(maps.Keys(controllers)) {
		v.Controllers = append(v.Controllers, versionView{Version: name, Pods: controllers[name]})
	}
	v.Warnings = skew(v)
	if !o.Structured() {
		writeVersions(s.Screen(), v, err == nil)
		return err
	}
	if err != nil {
		return err
	}
	return o.Encode(s, v)
}

// runningVersions returns how many pods run each version of the program name. Each node has one
// agent.
func runningVersions(ctx context.Context, s *session.Session, name string) (map[string]int, error) {
	versions, err := session.ListAll(ctx, s.Client, &corev1.PodList{}, func(l *corev1.PodList) (versions []string) {
		for i := range l.Items {
			if v := versionOf(&l.Items[i], name); v != "" {
				versions = append(versions, v)
			}
		}
		return versions
	}, client.InNamespace(namespace), client.MatchingLabels{"app.kubernetes.io/name": name})
	many := map[string]int{}
	for _, v := range versions {
		many[v]++
	}
	return many, err
}

// versionOf returns the tag of the image of a pod's container, "" if that does not run. An image
// has the tag of the version that it is of, unless who installed it has given it another.
func versionOf(pod *corev1.Pod, container string) string {
	runs := slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.Name == container && c.State.Running != nil
	})
	if !runs {
		return ""
	}
	for _, c := range pod.Spec.Containers {
		if c.Name == container {
			return tagOf(c.Image)
		}
	}
	return ""
}

// tagOf returns the tag of an image's name, or its digest if it has none.
func tagOf(image string) string {
	name, digest, _ := strings.Cut(image, "@")
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		return name[i+1:]
	}
	if digest != "" {
		return digest
	}
	return "latest"
}

func writeVersions(to screen.Screen, v versionsView, asked bool) {
	t := screen.Table{Heads: []string{"PROGRAM", "VERSION", "RUNS"}}
	t.Row(screen.Plain("client", v.Client, "")...)
	for _, a := range v.Agents {
		t.Row(screen.Plain("agents", a.Version, "on "+screen.Number(a.Nodes, "node", "nodes"))...)
	}
	for _, c := range v.Controllers {
		t.Row(screen.Plain("controllers", c.Version, "in "+screen.Number(c.Pods, "pod", "pods"))...)
	}
	if asked && len(v.Agents) == 0 {
		t.Row(screen.Plain("agents", "", "none")...)
	}
	if asked && len(v.Controllers) == 0 {
		t.Row(screen.Plain("controllers", "", "none")...)
	}
	t.Write(to, true)
	for _, w := range v.Warnings {
		to.Line("%s %s", to.Paint("WARNING", screen.LookWarn), w)
	}
}

// skew says which versions are not supported together. What is no released version, such as dev,
// is not judged.
func skew(v versionsView) (warnings []string) {
	for _, c := range v.Controllers {
		for _, a := range v.Agents {
			if !neighbours(a.Version, c.Version) {
				warnings = append(warnings, fmt.Sprintf("agents %s on %s do not fit controllers %s: at most one minor version may lie between them. Upgrade step by step",
					a.Version, screen.Number(a.Nodes, "node", "nodes"), c.Version))
			}
		}
	}
	for i, a := range v.Agents {
		for _, b := range v.Agents[i+1:] {
			if !neighbours(a.Version, b.Version) {
				warnings = append(warnings, fmt.Sprintf("agents %s on %s and agents %s on %s do not fit: at most one minor version may lie between them. Bring the older ones up first",
					a.Version, screen.Number(a.Nodes, "node", "nodes"), b.Version, screen.Number(b.Nodes, "node", "nodes")))
			}
		}
	}
	for _, running := range []struct {
		what string
		all  []versionView
	}{{"agents", v.Agents}, {"controllers", v.Controllers}} {
		for _, r := range running.all {
			if !neighbours(v.Client, r.Version) {
				warnings = append(warnings, fmt.Sprintf("this kubectl tenure is %s and there are %s %s: take one that is at most one minor version away", v.Client, running.what, r.Version))
			}
		}
	}
	return warnings
}

// neighbours reports whether two versions are supported together: at most one minor version lies
// between them. It is true where one of them is no version.
func neighbours(a, b string) bool {
	va, err1 := utilversion.ParseSemantic(a)
	vb, err2 := utilversion.ParseSemantic(b)
	if err1 != nil || err2 != nil {
		return true
	}
	low, high := min(va.Minor(), vb.Minor()), max(va.Minor(), vb.Minor())
	return va.Major() == vb.Major() && high-low <= 1
}
