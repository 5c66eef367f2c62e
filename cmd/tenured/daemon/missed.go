package daemon

import (
	"path/filepath"
	"time"

	"github.com/tenure-ipam/tenure/attach/node/missed"
	"github.com/tenure-ipam/tenure/attach/node/ready"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/netns"
)

// lookForMissed is how often it is looked for pods that the meta-plugin has missed.
const lookForMissed = 2 * time.Second

// configuration makes what keeps the meta-plugin's configuration for the runtime, and what finds
// the pods that the runtime made without it; both are nil where none is kept.
func (d *Daemon) configuration(of ready.Definitions, warn ready.Warn, turned func(), cache *kube.PodCache, events *kube.Events) (*ready.Keeper, *missed.Finder, error) {
	if d.cfg.Ready.Source == "" {
		return nil, nil, nil
	}
	k, err := ready.New(d.cfg.Ready, of, warn, turned, d.log)
	if err != nil {
		return nil, nil, err
	}
	return k, d.missed(k, cache, events), nil
}

// missed makes what finds this node's pods that the runtime made without the meta-plugin, whose
// configuration k keeps.
func (d *Daemon) missed(k *ready.Keeper, cache *kube.PodCache, events *kube.Events) *missed.Finder {
	cfg := missed.Config{ResultDirs: d.cfg.ResultDirs, Every: lookForMissed}
	for _, dir := range d.cfg.ResultDirs {
		if above := filepath.Dir(dir); above == filepath.Clean(d.cfg.AttachState) || filepath.Base(above) == "multus" {
			cfg.MetaDirs = append(cfg.MetaDirs, dir)
		}
	}
	pods := func() (all []missed.Pod) {
		for _, o := range cache.All() {
			all = append(all, missed.Pod{
				PodRef: kube.PodRefOf(o), MirrorOf: kube.MirrorOf(o), Leaving: o.GetDeletionTimestamp() != nil, Annotations: o.GetAnnotations(),
			})
		}
		return all
	}
	gone := func(path string) bool { return netns.SurelyAbsent(path, netns.SeesHost()) }
	return missed.New(cfg, missed.Node{Pods: pods, Gone: gone, Rival: k.Rival, Warn: events.WarnPod}, d.log)
}
