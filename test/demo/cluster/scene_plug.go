package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/test/demo/show"
	"github.com/tenure-ipam/tenure/test/process"
)

// plugged is the interface that comes and goes.
const plugged = "hot0"

func (d *demo) playPlug(ctx context.Context) {
	p, n := d.networks.pod, d.networks.pod.node
	service := n.hotplug()
	d.Must(service.Start(ctx))
	before := d.interfaces(p.ns)
	had := p.sel
	took := d.selects(ctx, p, append(slices.Clone(had), selection{Name: backupName, Interface: plugged}))
	d.showInterfaces(p)
	if now := d.interfaces(p.ns); len(now) != len(before)+1 {
		d.Fail("%s has the interfaces %v; want %v and %s", p.name, now, before, plugged)
	}
	d.Must(ping(ctx, d.networks.neighbour, d.addrs(p, plugged)[0].Addr()))
	d.OK("Within %s the pod has %s, with an address of pool %s, and its neighbour on the other node reaches it.", show.Millis(took), plugged, backupName)
	took = d.selects(ctx, p, had)
	if now := d.interfaces(p.ns); !slices.Equal(now, before) {
		d.Fail("%s has the interfaces %v; want %v as before", p.name, now, before)
	}
	d.OK("Taken out of the annotation, it is gone after %s.", show.Millis(took))
	d.Must(service.Stop())
}

// hotplug returns the service that changes running pods of the node.
func (n *node) hotplug() *process.Process {
	return &process.Process{
		Name: "tenured hotplug on " + n.name, Path: n.agent.Path, Log: filepath.Join(n.dir, "hotplug.log"),
		Args: []string{"hotplug", "--mount-namespace=", "--cni-conf-dir=" + filepath.Join(nodeCNI, filepath.Dir(attachConf)), "--cni-bin-dirs=" + filepath.Join(filepath.Dir(n.agent.Path), "rig") + "," + filepath.Dir(n.agent.Path)},
		Exec: func(cmd *exec.Cmd) error { return n.cni.Do(cmd.Start) },
	}
}

// selects edits what a running pod selects, and waits until it has that and its status says so.
func (d *demo) selects(ctx context.Context, p *pod, sel selections) (took time.Duration) {
	d.Command("kubectl -n %s annotate --overwrite pod %s %s='%s'", namespace, p.name, npwg.AnnotationNetworks, sel)
	base := p.object.DeepCopy()
	metav1.SetMetaDataAnnotation(&p.object.ObjectMeta, npwg.AnnotationNetworks, sel.String())
	d.Must(d.Client.Patch(ctx, p.object, client.MergeFrom(base)))
	p.sel = sel
	return d.Await(ctx, "tenured hotplug changes "+p.name, func(ctx context.Context) error {
		if err := d.Client.Get(ctx, clientKey(p.object), p.object); err != nil {
			return err
		}
		var list []npwg.Status
		if err := json.Unmarshal([]byte(p.object.Annotations[npwg.AnnotationStatus]), &list); err != nil {
			return fmt.Errorf("network status of %s: %w", p.name, err)
		}
		return p.compare(list)
	})
}
