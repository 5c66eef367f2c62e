package resolve

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/api/vif"
	"github.com/tenure-ipam/tenure/attach/facts"
)

// staticWhy is why a static pod has no VIFs.
const staticWhy = "it is a static pod, for which nobody makes VIFs: the kubelet runs it without asking the API server, so that no claim could go with it. Select a definition with a spec.config"

// definitionOf returns what the answer says of a definition.
func definitionOf(a *facts.Answer, namespace, name string) (facts.Definition, bool) {
	i := slices.IndexFunc(a.Networks, func(d facts.Definition) bool { return d.Namespace == namespace && d.Name == name })
	if i < 0 || a.Networks[i].Missing != "" {
		return facts.Definition{}, false
	}
	return a.Networks[i], true
}

func isVIF(d facts.Definition) bool {
	config := ""
	if d.Config != nil {
		config = *d.Config
	}
	return vif.Is(d.Annotations, config)
}

// addVIFs adds the elements of the pod's selections whose interfaces the control plane decides, and
// the definitions that are made for them.
func addVIFs(ctx context.Context, src Source, a *facts.Answer) error {
	if !slices.ContainsFunc(a.Networks, isVIF) {
		return nil
	}
	selections, invalid := npwg.Parse(a.Pod.Annotations[npwg.AnnotationNetworks], a.Pod.Namespace, func(namespace, name string) npwg.Version {
		d, _ := definitionOf(a, namespace, name)
		return npwg.VersionOf(d.Annotations, npwg.V13) // as the controller reads it
	})
	for i, sel := range selections[:min(len(selections), vif.MaxSelections)] {
		d, ok := definitionOf(a, sel.Namespace, sel.Name)
		if !ok || !isVIF(d) {
			continue
		}
		if !src.ServesVIFs() {
			a.NoVIFs = true
			return nil
		}
		made := facts.Ref{Namespace: podnetwork.Namespace, Name: vif.DefinitionName(sel.Namespace, sel.Name)}
		v := facts.VIF{Element: i, Interface: vif.Interface(sel, i, d.Annotations), Definition: made, MadeFor: vif.Fingerprint(d.Annotations)}
		if invalid != nil { // who makes the plan says what is wrong
			v.Refused = "annotation " + npwg.AnnotationNetworks + " is invalid"
		}
		a.VIFs = append(a.VIFs, v)
		if _, known := definitionOf(a, made.Namespace, made.Name); known {
			continue
		}
		m, err := src.Definition(ctx, made, false)
		if err != nil {
			return err
		}
		a.Networks = append(a.Networks, m)
	}
	return nil
}

// judgeVIFs says of each VIF which claim it has, by the pod's map, or why it cannot be attached. It
// waits for the map until ctx ends, and comes last therefore.
func judgeVIFs(ctx context.Context, src Source, a *facts.Answer, pod Pod) {
	if len(a.VIFs) == 0 || a.VIFs[0].Refused != "" {
		return
	}
	refuse := func(v *facts.VIF, later bool, format string, args ...any) {
		v.Refused, v.Later = fmt.Sprintf(format, args...), later
	}
	if pod.MirrorOf != "" {
		for i := range a.VIFs {
			refuse(&a.VIFs[i], false, staticWhy)
		}
		return
	}
	m, err := src.VIFs(ctx, pod, func(m vif.Map) bool {
		return !slices.ContainsFunc(a.VIFs, func(v facts.VIF) bool { return m[v.Interface].Claim == "" })
	})
	for i := range a.VIFs {
		v := &a.VIFs[i]
		entry := m[v.Interface]
		switch {
		case err != nil:
			refuse(v, true, "%v", err)
		case entry.Claim == "":
			refuse(v, true, "the controller has not written interface %s into the pod's annotation %s yet: the pod's Events say what it waits for, if it runs with the flag --vifs", v.Interface, vif.AnnotationMap)
		default:
			v.Claim, v.MAC = entry.Claim, entry.MAC
		}
	}
}

// MapOf returns the map of a pod, as its annotation has it: entries for another pod of that name
// are none.
func MapOf(p Pod) (vif.Map, error) {
	m, err := vif.ParseMap(p.Annotations[vif.AnnotationMap])
	if err != nil {
		return nil, err //nolint:wrapcheck // says what it is about
	}
	for name, v := range m {
		if v.PodUID != string(p.UID) {
			delete(m, name)
		}
	}
	return m, nil
}

// madeFor returns the definitions that are made for the VIFs in the map of a pod: a new sandbox of
// the pod needs them again.
func (r *Resolver) madeFor(p Pod) (refs []facts.Ref) {
	if !r.cfg.VIFs {
		return nil
	}
	m, _ := MapOf(p) // who answers says what is wrong with it
	for _, v := range m {
		ref := facts.Ref{Namespace: podnetwork.Namespace}
		if namespace, name, ok := strings.Cut(v.Network, "/"); ok && len(refs) < maxDefinitionsPod {
			ref.Name = vif.DefinitionName(namespace, name)
			refs = append(refs, ref)
		}
	}
	return refs
}

// ServesVIFs implements [Source].
func (r *Resolver) ServesVIFs() bool { return r.cfg.VIFs }

// VIFs implements [Source]. It goes by the watch of the node's pods.
func (r *Resolver) VIFs(ctx context.Context, pod Pod, complete func(vif.Map) bool) (vif.Map, error) {
	for {
		r.mu.Lock()
		changed := r.changed
		r.mu.Unlock()
		if p, ok := r.cl.Pods.Cached(pod.Namespace, pod.Name); ok && p.UID == pod.UID {
			pod = p
		}
		m, err := MapOf(pod)
		if err == nil && complete(m) {
			return m, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return m, err
		}
	}
}
