package moving

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/screen"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/translation"
)

// translates reports whether the IPAM has pools of its own, which are to be written as Tenure's.
func (i *importing) translates() bool {
	return i.from == translation.NVIPAM || i.from == translation.Spiderpool
}

// translate prints the definitions for Tenure and the pools that they name then. Definitions come
// first: a pool looks at what pods have by the definitions that name it, and is opened afterwards.
func (i *importing) translate(ctx context.Context, seen foreignState, objects map[string]nad.NetworkAttachmentDefinition) error {
	read := translation.Read{Definitions: slices.Collect(maps.Values(objects)), There: slices.Collect(maps.Keys(seen.pools))}
	slices.SortFunc(read.Definitions, func(a, b nad.NetworkAttachmentDefinition) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	group, kinds, of := translation.NVIPAMGroup, []string{"IPPoolList", "CIDRPoolList"}, translation.OfNVIPAM
	if i.from == translation.Spiderpool {
		group, kinds, of = translation.SpiderpoolGroup, []string{"SpiderIPPoolList", "SpiderReservedIPList"}, translation.OfSpiderpool
	}
	for _, kind := range kinds {
		if _, err := i.API.Others(ctx, schema.FromAPIVersionAndKind(group, kind), func(o *unstructured.Unstructured) {
			read.Objects = append(read.Objects, *o)
		}); err != nil {
			return err
		}
	}
	report := of(read)
	if i.o.Structured() {
		return i.o.Encode(i.Session, report)
	}
	return i.manifests(report, seen, objects)
}

// manifests prints what kubectl is to apply, and as comments what is to be known of it. The answer
// is no if some definitions would stay.
func (i *importing) manifests(report translation.Report, seen foreignState, objects map[string]nad.NetworkAttachmentDefinition) error {
	to, stay := i.Screen(), 0
	if len(report.Definitions) == 0 {
		to.Line("# There is no definition that names %s.", report.From)
		return nil
	}
	for _, d := range report.Definitions {
		to.Line("# definition %s: pools %s; %s", d.Name, strings.Join(d.Pools, ", "), having(seen, d.Name).podsKeep())
		remarks(to, d.InTheWay, d.Notes)
		if len(d.InTheWay) > 0 {
			stay++
			continue
		}
		text, err := manifestOf(objects[d.Name], d.Config)
		if err != nil {
			return fmt.Errorf("definition %s: %w", d.Name, err)
		}
		to.Line("---\n%s", strings.TrimSuffix(text, "\n"))
	}
	for _, p := range report.Pools {
		to.Line("# pool %s, of %s", p.Name, strings.Join(p.Of, ", "))
		remarks(to, p.InTheWay, p.Notes)
		if len(p.InTheWay) > 0 {
			continue
		}
		if p.PerNode {
			to.Line("# note: while a pod has an address of a node's subnet by %s, the node gives no other of it: new pods wait until the old ones on their node have ended", report.From)
		}
		text, err := yaml.Marshal(map[string]any{
			"apiVersion": v1alpha1.GroupVersion.String(), "kind": "IPPool", "metadata": map[string]any{"name": p.Name}, "spec": p.Spec,
		})
		if err != nil {
			return fmt.Errorf("pool %s: %w", p.Name, err)
		}
		to.Line("---\n%s", strings.TrimSuffix(string(text), "\n"))
	}
	for _, name := range report.Unnamed {
		to.Line("# left out, since no definition names it: %s", name)
	}
	if len(report.Definitions) > stay {
		to.Line("# nothing was written: see that %s gives no address any more, apply this, and wait with kubectl tenure import --from status --apply", report.From)
	}
	if stay > 0 {
		to.Line("# definitions that stay as they are, since something is in the way: %d", stay)
		return session.ErrNo
	}
	return nil
}

// remarks prints what is in the way, and what else is to be known.
func remarks(to screen.Screen, inTheWay, notes []string) {
	for _, w := range inTheWay {
		to.Line("# in the way: %s", w)
	}
	for _, n := range notes {
		to.Line("# note: %s", n)
	}
}

// having returns how many pods show how many addresses by a definition.
func having(seen foreignState, definition string) (s moveSegment) {
	for _, p := range seen.pods {
		has := 0
		for _, show := range p.Shows {
			if show.Definition == definition {
				has += len(show.Addrs)
			}
		}
		if has > 0 {
			s.Pods, s.Addresses = s.Pods+1, s.Addresses+has
		}
	}
	return s
}
