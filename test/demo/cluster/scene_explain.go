package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Two further pools, and networks by macvlan on the second cable.
const (
	storageName = "storage"
	backupName  = "backup"

	furtherNetworks = `apiVersion: tenure.dev/v1alpha1
kind: IPPool
metadata: {name: storage}
spec: {ranges: [{cidr: 10.78.0.0/24}]}
---
apiVersion: tenure.dev/v1alpha1
kind: IPPool
metadata: {name: backup}
spec: {ranges: [{cidr: 10.79.0.0/24}]}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: storage, namespace: shop}
spec:
  config: |
    {"cniVersion": "1.0.0", "name": "storage", "type": "macvlan", "master": "eth1",
     "capabilities": {"ips": true}, "ipam": {"type": "tenure", "pool": "storage"}}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: backup, namespace: shop}
spec:
  config: |
    {"cniVersion": "1.0.0", "name": "backup", "type": "macvlan", "master": "eth1",
     "ipam": {"type": "tenure", "pool": "backup"}}
`
)

// The pod with several networks: one by claim, one static, one ordinary.
const (
	severalName  = "api"
	severalClaim = "api.lan"
	severalAddr  = "10.78.0.50"
	severalIf    = "stor0"
)

var severalNetworks = selections{
	{Name: networkName, Claim: severalClaim},
	{Name: storageName, Interface: severalIf, IPs: []string{severalAddr}},
	{Name: backupName},
}

func (d *demo) playExplain(ctx context.Context) {
	d.Must(os.WriteFile(filepath.Join(workDir, "networks.yaml"), []byte(furtherNetworks), 0o600))
	d.kubectl(ctx, "create", "-f", "networks.yaml")
	for _, name := range []protocol.PoolName{storageName, backupName} {
		d.awaitOpen(ctx, name)
	}
	d.annotation("api.yaml", severalNetworks)
	d.explain(ctx, "api.yaml", severalNetworks, 0, "Pod shop/api has 4 attachments",
		"1. default network pods on interface eth0", "2. network shop/lan on interface net1", "claim "+severalClaim,
		"3. network shop/storage on interface stor0", "addresses "+severalAddr, "4. network shop/backup on interface net3")
	err := d.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: severalName}, &corev1.Pod{})
	if !apierrors.IsNotFound(err) {
		d.Fail("pod %s should not be there yet: %w", severalName, err)
	}
	d.OK("The pod would get four interfaces. It does not exist, and nothing has been changed.")

	wrong := selections{{Name: backupName, IPs: []string{"10.79.0.9"}}, {Name: "store"}}
	d.annotation("wrong.yaml", wrong)
	d.explain(ctx, "wrong.yaml", wrong, 3, "would not be attached", "network shop/backup", "capability ips", "shop/store")
	d.OK("This one would fail: both faults are named, each with its place and what to do.")
}

// explain writes a pod's manifest, and shows what kubectl tenure explain says of it,
// without the plugins' configurations and variables. It checks the exit code, and that every one of
// want is said.
func (d *demo) explain(ctx context.Context, file string, of selections, code int, want ...string) {
	manifest := fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: %s
  namespace: %s
  annotations:
    %s: '%s'
spec: {containers: [{name: main, image: demo}]}
`, severalName, namespace, npwg.AnnotationNetworks, of)
	d.Must(os.WriteFile(filepath.Join(workDir, file), []byte(manifest), 0o600))
	args := []string{
		"tenure", "explain", "-f", file, "--cni-conf", filepath.Join(d.nodeA.name, "cni", attachSource),
		"--conf-dir", filepath.Join(d.nodeA.name, "cni", filepath.Dir(podsConf)),
	}
	text, got := d.runKubectl(ctx, args...)
	if got != code {
		d.Fail("kubectl %s exits with %d; want %d: %s", strings.Join(args, " "), got, code, text)
	}
	said := strings.Join(strings.Fields(text), " ") // columns are padded
	for _, w := range want {
		if !strings.Contains(said, w) {
			d.Fail("kubectl tenure explain does not say %q: %s", w, text)
		}
	}
	// What marks the lines of configurations, and those of CNI's variables.
	const configuration, variable = "      ", "CNI_"
	var shown strings.Builder
	for l := range strings.Lines(text) {
		if !strings.HasPrefix(l, configuration) && !strings.Contains(l, variable) {
			shown.WriteString(l)
		}
	}
	d.Command("kubectl %s | grep -v -e '^%s' -e %s", strings.Join(args, " "), configuration, variable)
	d.Block(shown.String())
}
