package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// kubectl runs a command line without a cluster.
func kubectl(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	var out, errs bytes.Buffer
	code = run(t.Context(), args, strings.NewReader(stdin), &out, &errs)
	return code, out.String(), errs.String()
}

func TestUsage(t *testing.T) {
	for _, tt := range []struct {
		args string
		code int
		want string // of stdout, or of stderr where it fails
	}{
		{"", exitUsage, "no command"},
		{"help", exitDone, "what a pod is attached to, and with what"},
		{"--help", exitDone, "Exit codes"},
		{"help explain", exitDone, "--cni-conf"},
		{"who --help", exitDone, "kubectl tenure who ADDRESS"},
		{"pools --help", exitDone, "--context"},
		{"--version", exitDone, "kubectl-tenure development"},
		{"version", exitFail, "read the kubeconfig"},
		{"version -o csv", exitUsage, `--output is "csv"`},
		{"frobnicate", exitUsage, `unknown command "frobnicate"`},
		{"help frobnicate", exitUsage, `unknown command "frobnicate"`},
		{"explain", exitUsage, "give either the name of one pod, or a manifest"},
		{"explain a b", exitUsage, "give either the name of one pod, or a manifest"},
		{"explain a -f b", exitUsage, "give either the name of one pod, or a manifest"},
		{"explain --nonsense", exitUsage, "unknown flag: --nonsense"},
		{"version 1", exitUsage, "it takes no arguments"},
		{"who", exitUsage, "give one address"},
		{"who 10.0.0.1 10.0.0.2", exitUsage, "give one address"},
		{"who 10.0.0.1 -o wide", exitUsage, `--output is "wide", must be one of json, yaml`},
		{"who --help", exitDone, "create pods/exec in tenure-system"},
		{"who 10.0.0.1 --at 2026-13-01", exitUsage, `who: --at: "2026-13-01" is no time: write one such as 2026-11-17T14:00`},
		{"who 10.0.0.1 --at 2100-01-01", exitUsage, "is yet to come"},
		{"who 10.0.0.1 --since 7x", exitUsage, `who: --since: "7x" is no time`},
		{"who 10.0.0.1 --since=", exitUsage, "who: give --at or --since"},
		{"who 10.0.0.1 --since 7d --at 2026-11-17T14:00", exitUsage, "who: give one of --at and --since"},
		{"who 10.0.0.1 --since 7d --timeout=0s", exitUsage, "who: --timeout is 0s, must be positive"},
		{"who 10.0.0.1 --since 7d -o wide", exitUsage, `--output is "wide", must be one of json, yaml`},
		{"who 10.0.0.1 --at 2020-11-17T14:00", exitFail, "read the kubeconfig"},
		{"help bundle", exitDone, "--limit-bytes"},
		{"bundle x", exitUsage, "it takes no arguments"},
		{"bundle --since=0s", exitUsage, "--since is 0s, must be positive"},
		{"bundle --limit-bytes=-1", exitUsage, "--limit-bytes is -1, must be positive"},
		{"bundle --node a -n b", exitUsage, "--node and --namespace do not go together"},
		{"bundle -f none.tar.gz", exitFail, "read the kubeconfig"},
		{"help check", exitDone, "--strict"},
		{"completion", exitUsage, "give one of bash"},
		{"completion frob", exitUsage, "give one of bash"},
		{"completion bash x", exitUsage, "it takes no arguments"},
		{"completion bash", exitDone, "kubectl-tenure"},
		{"completion --help", exitDone, "autocompletion script"},
		{"pods", exitUsage, `unknown command "pods"`},
		{"pod", exitUsage, "give one pod"},
		{"pod a/b/c", exitUsage, `pod: "a/b/c" names no pod: write NAME, or NAMESPACE/NAME`},
		{"pod a/b -n c", exitUsage, "pod: a/b is in namespace a, and --namespace is c"},
		{"pod a/b -n a", exitFail, "read the kubeconfig"},
		{"explain a/", exitUsage, `explain: "a/" names no pod`},
		{"pools -o csv", exitUsage, `--output is "csv"`},
		{"leases --pool", exitUsage, "flag needs an argument"},
		{"who 10.0.0", exitUsage, `who: "10.0.0" is no IP address`},
		{"pool", exitUsage, `unknown command "pool": did you mean pod or pools?`},
		{"who fe80::1%eth0", exitUsage, `who: "fe80::1%eth0" is no IP address`},
		{"import", exitUsage, `--from is missing: give one of whereabouts, host-local, nv-ipam, spiderpool, status`},
		{"import --from host-local --trust-status", exitUsage, "it needs --apply"},
		{"import --from calico", exitUsage, `--from is "calico", must be one of whereabouts, host-local, nv-ipam, spiderpool, status`},
		{"import --from nv-ipam --apply", exitUsage, "apply these, then wait with import --from status --apply"},
		{"import --from whereabouts lan", exitUsage, "it takes no arguments"},
		{"import --from whereabouts -o table", exitUsage, `--output is "table", must be one of json, yaml`},
		{"import --from whereabouts --apply -o json", exitUsage, "leave it out with --apply"},
		{"import --from whereabouts --timeout=soon", exitUsage, "invalid duration"},
		{"import --from whereabouts --timeout=-1s", exitUsage, "--timeout is -1s, must be 0 or longer"},
		{"claims --save -o wide", exitUsage, `--output is "wide", must be one of json, yaml`},
		{"claims --save -w", exitUsage, "--save and --watch do not go together"},
		{"export", exitUsage, `--to is missing: give whereabouts`},
		{"export --to host-local", exitUsage, `--to is "host-local", must be whereabouts`},
		{"export --to whereabouts --apply -o yaml", exitUsage, "leave it out with --apply"},
		{"uninstall all", exitUsage, "it takes no arguments"},
		{"uninstall --timeout=0s", exitUsage, "--timeout is 0s, must be positive"},
		{"uninstall", exitFail, "read the kubeconfig"},
		{"help uninstall", exitDone, "--force"},
		{"pools", exitFail, "set KUBECONFIG, or give --kubeconfig"},
		{"import --from whereabouts", exitFail, "read the kubeconfig"},
		{"export --to whereabouts", exitFail, "read the kubeconfig"},
		{"leases", exitFail, "read the kubeconfig"},
		{"pod web", exitFail, "read the kubeconfig"},
		{"claims", exitFail, "read the kubeconfig"},
		{"who 10.0.0.1", exitFail, "read the kubeconfig"},
		{"explain web", exitFail, "read the kubeconfig"},
		{"explain -f none.yaml", exitFail, "no such file"},
		{"explain -f - --cni-conf none.conflist", exitFail, "none.conflist"},
	} {
		t.Run(tt.args, func(t *testing.T) {
			code, stdout, stderr := kubectl(t, "", strings.Fields(tt.args)...)
			text := stdout
			if tt.code != exitDone {
				text = stderr
			}
			if code != tt.code || !strings.Contains(text, tt.want) {
				t.Errorf("got %d, stdout %q, stderr %q; want %d with %q", code, stdout, stderr, tt.code, tt.want)
			}
		})
	}
}

const definitions = `
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: lan, namespace: shop}
spec:
  config: '{"cniVersion": "1.0.0", "type": "macvlan", "master": "eth1", "capabilities": {"ips": true}, "ipam": {"type": "tenure", "pool": "lan"}}'
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: wan, namespace: net}
spec: {config: '{"cniVersion": "1.0.0", "name": "wan", "type": "bridge"}'}
`

const pod = `apiVersion: v1
kind: Pod
metadata:
  name: web
  namespace: shop
  annotations: {k8s.v1.cni.cncf.io/networks: '[{"name": "lan", "interface": "lan0", "ips": ["10.1.1.5/24"]}]'}
spec: {containers: [{name: c, image: i}]}
`

// A manifest that nobody has applied is explained without a cluster, whatever makes
// the pod.
func TestExplainsAManifest(t *testing.T) {
	const deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  template:
    metadata: {annotations: {k8s.v1.cni.cncf.io/networks: lan@lan0}}
`
	const cronJob = `apiVersion: batch/v1
kind: CronJob
metadata: {name: web, namespace: shop}
spec: {jobTemplate: {spec: {template: {metadata: {annotations: {k8s.v1.cni.cncf.io/networks: lan@lan0}}}}}}
`
	var items strings.Builder // as kubectl get -o yaml prints more than one object
	for text := range strings.SplitSeq(cronJob+definitions, "---\n") {
		items.WriteString("- " + strings.TrimSpace(strings.ReplaceAll(text, "\n", "\n  ")) + "\n")
	}
	for name, manifest := range map[string]string{
		"Pod": pod + definitions, "Deployment": deployment + definitions, "CronJob": cronJob + definitions, "List": "apiVersion: v1\nkind: List\nitems:\n" + items.String(),
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := kubectl(t, manifest, "explain", "-f", "-")
			if code != exitDone {
				t.Fatalf("got %d\n%s%s", code, stdout, stderr)
			}
			for _, want := range []string{"shop/web", "2 attachments", "shop/lan", "lan0", `"master"`, "macvlan", "default network on interface eth0", "--cni-conf", "K8S_POD_UID=POD-UID"} {
				if !strings.Contains(stdout, want) {
					t.Errorf("it does not say %q:\n%s", want, stdout)
				}
			}
			if strings.Contains(stdout, "not-seen-by-kubectl-tenure") {
				t.Errorf("it shows what stands in for the default network:\n%s", stdout)
			}
		})
	}
}

// TestExplainsAnUpdateThatNeverEnds: a Deployment whose pods have addresses of their own.
func TestExplainsAnUpdateThatNeverEnds(t *testing.T) {
	const want = "its old pod when the new one is Ready, and the new one waits for the old one's "
	for _, tt := range []struct{ name, spec, element, want string }{
		{"as it is by default", "", `"ips": ["10.1.1.5/24"]`, want + "addresses: a rolling update never ends. Give it strategy: {type: Recreate}"},
		{"a claim", "replicas: 1", `"ipam-claim-reference": "c"`, want + "claim c: "},
		{"one more", "strategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}", `"ips": ["10.1.1.5/24"]`, want},
		{"Recreate", "strategy: {type: Recreate}", `"ips": ["10.1.1.5/24"]`, ""},
		{"one fewer", "strategy: {rollingUpdate: {maxSurge: 0}}", `"ips": ["10.1.1.5/24"]`, ""},
		{"one of one", "strategy: {rollingUpdate: {maxUnavailable: 1}}", `"ips": ["10.1.1.5/24"]`, ""},
		{"any addresses", "", `"interface": "lan0"`, ""},
		{"none", "replicas: 0", `"ips": ["10.1.1.5/24"]`, ""},
		{"two replicas", "replicas: 2", `"ips": ["10.1.1.5/24"]`, "has 2 replicas, which all ask for the same addresses"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			manifest := fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  %s
  template: {metadata: {annotations: {k8s.v1.cni.cncf.io/networks: '[{"name": "lan", %s}]'}}}
`, tt.spec, tt.element)
			code, stdout, stderr := kubectl(t, manifest+definitions, "explain", "-f", "-")
			if code != exitDone || !strings.Contains(stdout, tt.want) || tt.want == "" && strings.Contains(stdout, "Deployment") {
				t.Errorf("got %d; want %q in\n%s%s", code, tt.want, stdout, stderr)
			}
		})
	}
}

// TestExplainsWhyNot (N11, N77).
func TestExplainsWhyNot(t *testing.T) {
	for _, tt := range []struct{ name, networks, want string }{
		{"another namespace's", "net/wan", "isolated"},
		{"name that is none", "a/b/c", "InvalidNetworkAnnotation"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			manifest := strings.Replace(pod, `[{"name": "lan", "interface": "lan0", "ips": ["10.1.1.5/24"]}]`, tt.networks, 1) + definitions
			code, stdout, stderr := kubectl(t, manifest, "explain", "-f", "-")
			if want := map[bool]int{true: exitDone, false: exitNo}[strings.HasPrefix(tt.want, "Invalid")]; code != want || !strings.Contains(stdout, tt.want) {
				t.Errorf("got %d; want %d, and %q in\n%s%s", code, want, tt.want, stdout, stderr)
			}
		})
	}
}

// What lies on the node is taken from what is given of it (N3, N9).
func TestExplainsWithTheNodesFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	conf := write("conf", `{"cniVersion":"1.1.0","name":"tenure","plugins":[{"type":"tenure-attach","clusterNetwork":"/etc/cni/multus/net.d/10-calico.conflist"}]}`)
	write("10-calico.conflist", `{"cniVersion":"0.3.1","name":"k8s-pod-network","plugins":[{"type":"calico"}]}`)
	write("20-edge.conf", `{"cniVersion":"0.3.1","name":"edge","type":"ptp"}`)
	manifest := strings.Replace(pod, `[{"name": "lan", "interface": "lan0", "ips": ["10.1.1.5/24"]}]`, "edge", 1) + `---
{apiVersion: k8s.cni.cncf.io/v1, kind: NetworkAttachmentDefinition, metadata: {name: edge, namespace: shop}}
`
	code, stdout, stderr := kubectl(t, manifest, "explain", "-f", "-", "--cni-conf", conf, "--conf-dir", dir)
	if code != exitDone || !strings.Contains(stdout, "calico") || !strings.Contains(stdout, `"ptp"`) {
		t.Errorf("got %d\n%s%s", code, stdout, stderr)
	}
	code, stdout, stderr = kubectl(t, manifest, "explain", "-f", "-", "--cni-conf", conf)
	if code != exitNo || !strings.Contains(stdout, "--conf-dir") {
		t.Errorf("without the node's files: got %d; want %d, and what to do\n%s%s", code, exitNo, stdout, stderr)
	}
}

func TestManifestWithoutAPod(t *testing.T) {
	code, _, stderr := kubectl(t, definitions, "explain", "-f", "-")
	if code != exitFail || !strings.Contains(stderr, "there is no pod in it") {
		t.Errorf("got %d %q", code, stderr)
	}
}
