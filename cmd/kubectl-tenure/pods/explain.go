package pods

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/attach/node/resolve"
	"github.com/tenure-ipam/tenure/attach/plan"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
	"github.com/tenure-ipam/tenure/ipam/controller/networks"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

const explainHelp = `Prints the plan that tenure-attach makes for a pod: each network in order, with the
configuration, the arguments and the interface that its plugin is given; what is
ignored of the pod's annotations; and what would fail, and why.

The pod is one of the cluster, or the first one in a manifest, which need not exist:
a Pod, or something with a pod template. NetworkAttachmentDefinitions in the manifest
stand in for those of the cluster.

What lies on a node is not seen from here. Give the node's CNI configuration of
tenure-attach by --cni-conf: without it, the default network and the rules between
namespaces are those of a fresh install. Give a copy of the node's directory by
--conf-dir: without it, networks that are configured by a file are not found. Devices
are the kubelet's to give, when the pod starts.`

// NewExplain returns the verb explain.
func NewExplain(s *session.Session) *cobra.Command {
	e := &explanation{Session: s}
	c := &cobra.Command{
		Use: "explain [NAMESPACE/]POD|-f FILE", Short: "what a pod is attached to, and with what, or why it is not",
		Long: explainHelp, ValidArgsFunction: s.OnePod,
		RunE: func(c *cobra.Command, args []string) error { return e.run(c.Context(), args) },
	}
	c.Flags().StringVarP(&e.file, "filename", "f", "", "path of a manifest, - for standard input")
	c.Flags().StringVar(&e.conf, "cni-conf", "", "path of the CNI configuration with tenure-attach")
	c.Flags().StringVar(&e.confDir, "conf-dir", "", "directory with the node's other CNI configurations")
	return c
}

// explanation is a call of explain.
type explanation struct {
	*session.Session
	file, conf, confDir string
}

// fresh is the configuration of a fresh install, whose default network is not known here:
// something stands in for it.
const (
	fresh = `{"cniVersion":"1.1.0","name":"tenure","type":"tenure-attach",
"defaultNetwork":{"cniVersion":"1.0.0","name":"default-network","type":"` + standIn + `"}}`
	standIn = "not-seen-by-kubectl-tenure"

	unseenDefault = "its plugins and their configuration are not seen from here: give the node's configuration of tenure-attach by --cni-conf"
)

func (e *explanation) run(ctx context.Context, args []string) error {
	if (e.file == "") != (len(args) == 1) || len(args) > 1 {
		return session.Usagef("explain: give either the name of one pod, or a manifest by -f")
	}
	c, err := e.config()
	if err != nil {
		return err
	}
	src := &source{Session: e.Session}
	if e.file != "" {
		if err := src.read(e.file); err != nil {
			return err
		}
		if src.namespace, err = src.podNamespace(); err != nil {
			return err
		}
	} else if src.namespace, src.name, err = e.PodNamed("explain", args[0]); err != nil {
		return err
	}
	ref := src.ref()
	p, faults, err := planFor(ctx, src, c, ref, e.disk(c))
	if err != nil {
		return err
	}
	unseen := ""
	if slices.ContainsFunc(p.Steps, func(s plan.Step) bool { return s.Default && bytes.Contains(s.List, []byte(standIn)) }) {
		unseen = unseenDefault
	}
	if err := plan.Explain(e.Stdout, p, faults, unseen); err != nil {
		return err
	}
	if faults != nil {
		return session.ErrNo
	}
	return nil
}

// planFor makes the plan of a pod; faults are why it would not be carried out.
func planFor(ctx context.Context, src *source, c *plan.Config, ref facts.PodRef, disk plan.Disk) (p plan.Plan, faults, err error) {
	answer, err := resolve.Gather(ctx, src, c.Question(ref))
	if err != nil {
		return plan.Plan{}, nil, err
	}
	call := plan.CallOf(answer.Pod.PodRef)
	call.Runtime = c.Runtime
	p, faults = plan.Make(c, call, answer, disk)
	if src.deployment != nil {
		p.Notes = append(p.Notes, standoffs(src.deployment, p.Steps)...)
	}
	mistakes, err := src.mistakes(ctx, answer.Networks)
	return p, errors.Join(append([]error{faults}, mistakes...)...), err
}

// mistakes returns what is wrong with the definitions that a pod selects, as far as it is Tenure's:
// what the plan does not see, since only the plugins read it.
func (s *source) mistakes(ctx context.Context, selected []facts.Definition) (all []error, err error) {
	for _, d := range selected {
		if d.Config == nil || !json.Valid([]byte(*d.Config)) { // the plan says it
			continue
		}
		n := networks.Read(d.Namespace, d.Name, time.Time{}, *d.Config)
		if n.ByNamespace() {
			// A namespace that cannot be seen from here counts as one with the labels.
			if labels, err := s.Labels(ctx, s.namespace); err == nil {
				n = n.OfNamespace(s.namespace, labels)
			}
		}
		fault := n.Fault
		if fault == "" {
			fault = n.Missing(func(pool string) bool {
				exists, readErr := s.exists(ctx, pool)
				if readErr != nil {
					err = readErr
				}
				return exists || readErr != nil
			})
		}
		if fault != "" {
			all = append(all, fmt.Errorf("network attachment definition %s: %s", n, fault))
		}
	}
	return all, err
}

// exists reports whether a pool exists. One that cannot be seen from here counts as there: a
// manifest is explained without a cluster, too.
func (s *source) exists(ctx context.Context, pool string) (bool, error) {
	if err := s.Connect(); err != nil {
		return true, nil //nolint:nilerr // as it says
	}
	_, out, err := s.API.ReadIPPool(ctx, protocol.PoolName(pool))
	switch {
	case out == protocol.NotFound:
		return false, nil
	case err != nil && !session.Forbidden(err):
		return false, fmt.Errorf("read pool %s: %w", pool, err)
	}
	return true, nil
}

// config reads the configuration of tenure-attach.
func (e *explanation) config() (*plan.Config, error) {
	text := []byte(fresh)
	if e.conf != "" {
		var err error
		if text, err = os.ReadFile(e.conf); err != nil {
			return nil, err
		}
	}
	c, err := plan.ParseInstalled(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.conf, err)
	}
	return c, nil
}

// disk is what is known of the node's files.
func (e *explanation) disk(c *plan.Config) plan.Disk {
	if e.confDir == "" {
		return noDisk{}
	}
	dir, err := filepath.Abs(e.confDir)
	if err != nil { // there is no working directory
		return noDisk{}
	}
	return nodesCopy{plan.Files{Root: os.DirFS("/"), ConfDir: dir}, c.ConfDir}
}

// noDisk is a node's disk of which nothing is known.
type noDisk struct{}

var errNoDisk = errors.New("the node's files are not seen from here: give a copy of its directory by --conf-dir")

// Lookup implements plan.Disk.
func (noDisk) Lookup(string) (json.RawMessage, error) { return nil, errNoDisk }

// Read implements plan.Disk.
func (noDisk) Read(string) (json.RawMessage, error) { return nil, errNoDisk }

// nodesCopy is a copy of a node's directory: a path in the one means the same in the
// other.
type nodesCopy struct {
	plan.Files
	original string
}

// Read implements plan.Disk.
func (n nodesCopy) Read(path string) (json.RawMessage, error) {
	rel, err := filepath.Rel(n.original, path)
	if err != nil || !filepath.IsLocal(rel) {
		return nil, fmt.Errorf("%s: it is not in the node's %s, of which --conf-dir is a copy", path, n.original)
	}
	return n.Files.Read(filepath.Join(n.ConfDir, rel))
}
