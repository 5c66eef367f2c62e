package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestObject(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{
			"a definition", `{"kind":"NetworkAttachmentDefinition","metadata":{"name":"lan","managedFields":[{}],"annotations":{"k8s.v1.cni.cncf.io/resourceName":"r","x.example/y":"z"}},"spec":{"config":"{\"name\":\"lan\",\"apiToken\":\"t\",\"ipam\":{\"type\":\"tenure\",\"Password\":{\"a\":1}}}"}}`,
			`{"kind":"NetworkAttachmentDefinition","metadata":{"name":"lan","annotations":{"k8s.v1.cni.cncf.io/resourceName":"r"}},"spec":{"config":"{\"apiToken\":\"(left out)\",\"ipam\":{\"Password\":\"(left out)\",\"type\":\"tenure\"},\"name\":\"lan\"}"}}`,
		},
		{
			"a config that is no JSON", `{"kind":"NetworkAttachmentDefinition","spec":{"config":"{\"key\": hush"}}`,
			`{"kind":"NetworkAttachmentDefinition","spec":{"config":"(left out): 12 bytes that are no JSON"}}`,
		},
		{
			"two values", `{"kind":"NetworkAttachmentDefinition","spec":{"config":"{} {\"token\": \"hush\"}"}}`,
			`{"kind":"NetworkAttachmentDefinition","spec":{"config":"(left out): 20 bytes that are no JSON"}}`,
		},
		{
			"JSON in JSON", `{"metadata":{"annotations":{"tenure.dev/x":"[{\"cni-args\":{\"more\":\"{\\\"psk\\\":\\\"p\\\"}\"}}]"}}}`,
			`{"metadata":{"annotations":{"tenure.dev/x":"[{\"cni-args\":{\"more\":\"{\\\"psk\\\":\\\"(left out)\\\"}\"}}]"}}}`,
		},
		{
			"a workload", `{"spec":{"imagePullSecrets":[{"name":"pull"}],"automountServiceAccountToken":false,"containers":[{"args":["--debug","--password","p","--token=t"],"env":[{"name":"A","value":"hush"},{"name":"B","valueFrom":{"secretKeyRef":{"name":"s","key":"k"}}}]}],"volumes":[{"secret":{"secretName":"s","optional":true}},{"projected":{"sources":[{"serviceAccountToken":{"path":"token","expirationSeconds":1}}]}}],"tolerations":[{"key":"k"}]}}`,
			`{"spec":{"imagePullSecrets":[{"name":"pull"}],"automountServiceAccountToken":false,"containers":[{"args":["--debug","--password","(left out)","--token=(left out)"],"env":[{"name":"A","value":"(left out)"},{"name":"B","valueFrom":{"secretKeyRef":{"name":"s","key":"k"}}}]}],"volumes":[{"secret":{"secretName":"s","optional":true}},{"projected":{"sources":[{"serviceAccountToken":{"path":"token","expirationSeconds":1}}]}}],"tolerations":[{"key":"k"}]}}`,
		},
		{
			"a secret that is no reference", `{"spec":{"secret":{"secretName":"s","stringData":"hush"}}}`, `{"spec":{"secret":"(left out)"}}`,
		},
		{
			"configurations of others", `{"spec":{"config":"{\"env\":{\"A\":\"hush\"},\"args\":[{\"name\":\"DB_PASSWORD\",\"value\":\"hush\"}],\"kubernetes\":{\"kubeconfig\":\"/etc/cni/net.d/x.kubeconfig\"},\"authKey\":7,\"vlan\":7,\"key\":\"k\",\"authenticate\":true}"}}`,
			`{"spec":{"config":"{\"args\":[{\"name\":\"DB_PASSWORD\",\"value\":\"(left out)\"}],\"authKey\":\"(left out)\",\"authenticate\":true,\"env\":{\"A\":\"(left out)\"},\"key\":\"(left out)\",\"kubernetes\":{\"kubeconfig\":\"/etc/cni/net.d/x.kubeconfig\"},\"vlan\":7}"}}`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var in, want map[string]any
			for text, into := range map[string]*map[string]any{tt.in: &in, tt.want: &want} {
				if err := json.Unmarshal([]byte(text), into); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(want, newRedactor().object(in)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestScrub(t *testing.T) {
	r := newRedactor()
	r.learn(map[string]any{"a": []any{"known-to-be-secret", "short"}})
	for in, want := range map[string]string{
		"the pool lan has no address: try again":                                       "the pool lan has no address: try again",
		`{"level":"INFO","msg":"dial","apiKey":"hush","node":"a"}`:                     `{"level":"INFO","msg":"dial","apiKey":(left out),"node":"a"}`,
		`"config":"{\"password\":\"hu\\\"sh\",\"vlan\":7}"`:                            `"config":"{\"password\":(left out),\"vlan\":7}"`,
		"token=hush; next=1":                                                           "token=(left out); next=1",
		"Authorization: Basic aHVzaDpodXNo":                                            "Authorization: (left out)",
		"bearer aHVzaDpodXNo1 and on":                                                  "bearer (left out) and on",
		"GET https://me:hush@host/x":                                                   "GET https://(left out)@host/x",
		"got eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-_9 here":                         "got (left out) here",
		"a -----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY----- b":       "a (left out) b",
		"a -----BEGIN PRIVATE KEY-----\\nAAAA":                                         "a (left out)",
		"it repeats known-to-be-secret, and what is short":                             "it repeats (left out), and what is short",
		`secrets "tenure-controller-webhook" not found`:                                `secrets "tenure-controller-webhook" not found`,
		"mounts /etc/kubernetes/admin.kubeconfig of 10.0.0.1:6443":                     "mounts /etc/kubernetes/admin.kubeconfig of 10.0.0.1:6443",
		`tenure_agent_store_faults 0`:                                                  `tenure_agent_store_faults 0`,
		`the annotation k8s.v1.cni.cncf.io/networks names "lan", which does not exist`: `the annotation k8s.v1.cni.cncf.io/networks names "lan", which does not exist`,
	} {
		if got := r.scrub(in); got != want {
			t.Errorf("%q:\n got %q\nwant %q", in, got, want)
		}
	}
}

// A planter makes objects, and knows what of them is secret and what is not.
type planter struct {
	*rand.Rand
	secrets, plain []string
}

func (p *planter) secret() string {
	s := fmt.Sprintf("hush-%d-%x", len(p.secrets), p.Uint64())
	p.secrets = append(p.secrets, s)
	return s
}

func (p *planter) word() string {
	s := fmt.Sprintf("plain-%d-%x", len(p.plain), p.Uint32())
	p.plain = append(p.plain, s)
	return s
}

func (p *planter) pick(all ...string) string { return all[p.IntN(len(all))] }

// config makes a configuration, with secrets at any depth.
func (p *planter) config(depth int) any {
	switch n := p.IntN(10); {
	case depth <= 0 || n == 0:
		return p.word()
	case n == 1:
		return []any{p.config(depth - 1), p.word(), p.pick("--password", "-token", "--api-key"), p.secret()}
	case n == 2:
		text, err := json.Marshal(map[string]any{"in": p.config(depth - 1)})
		if err != nil {
			panic(err)
		}
		return string(text)
	case n == 3:
		return p.pick("https://u:", "postgres://") + p.secret() + "@host/" + p.word()
	case n == 4:
		return map[string]any{p.pick("env", "environment"): map[string]any{"X": p.secret()}}
	case n == 5:
		return map[string]any{"name": p.pick("SECRET", "dbPassword"), "value": p.secret()}
	}
	m := map[string]any{p.pick("vlan", "master", "mode", "pool"): p.config(depth - 1)}
	key := p.pick("password", "PASSWD", "api_key", "x-auth-token", "clientSecret", "credentials", "psk", "wifi-psk", "pass", "privateKey", "Authorization", "kubeconfig", "key", "sessionCookie")
	switch p.IntN(3) {
	case 0:
		m[key] = p.secret()
	case 1:
		m[key] = []any{p.secret(), map[string]any{"deep": p.secret()}}
	case 2:
		m[key] = map[string]any{"value": p.secret(), "n": 7}
	}
	return m
}

// definition makes a network definition.
func (p *planter) definition() map[string]any {
	config, err := json.Marshal(map[string]any{"name": p.word(), "plugins": []any{p.config(5), p.config(5)}})
	if err != nil {
		panic(err)
	}
	text := string(config)
	if p.IntN(5) == 0 {
		text += p.pick("}", " {}", ",")
		p.plain = nil
	}
	args, err := json.Marshal([]any{map[string]any{"name": "lan", "cni-args": p.config(4)}})
	if err != nil {
		panic(err)
	}
	return map[string]any{
		"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
		"metadata": map[string]any{
			"name": p.word(), "managedFields": []any{map[string]any{"manager": p.secret()}},
			"annotations": map[string]any{
				"kubectl.kubernetes.io/last-applied-configuration": p.secret(), "example.com/x": p.secret(), "nottenure.dev/x": p.secret(),
				"k8s.v1.cni.cncf.io/networks": string(args), "tenure.dev/domain": p.word(),
			},
		},
		"spec": map[string]any{"config": text},
	}
}

// workload makes a DaemonSet.
func (p *planter) workload() map[string]any {
	return map[string]any{"kind": "DaemonSet", "metadata": map[string]any{"name": p.word()}, "spec": map[string]any{"template": map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{"vault.example/x": p.secret()}},
		"spec": map[string]any{"containers": []any{map[string]any{
			"image": p.word(), "args": []any{"--token=" + p.secret(), "--node=" + p.word()},
			"env": []any{map[string]any{"name": p.word(), "value": p.secret()}, map[string]any{"name": "N", "valueFrom": map[string]any{"fieldRef": map[string]any{"fieldPath": p.word()}}}},
		}}},
	}}}
}

// FuzzSecrets: no secret of any object is in the tar, not in that object's file, and not in a log
// that repeats it; and what is no secret is.
func FuzzSecrets(f *testing.F) {
	for seed := range uint64(50) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		p := &planter{Rand: rand.New(rand.NewPCG(seed, 1))}
		var packed bytes.Buffer
		b := &bundle{redact: newRedactor(), out: newArchive(&packed, "d", time.Now())}
		objects := []unstructured.Unstructured{{Object: p.definition()}, {Object: p.workload()}}
		if err := b.addObjects("things", 1, objects); err != nil {
			t.Fatal(err)
		}
		// Of what was under no key of a secret's, as a foreign annotation, a log may tell.
		log := "level=INFO token=" + p.secret() + " msg=\"" + p.word() + "\" Authorization: Bearer " + p.secret() + "\n"
		for known := range b.redact.known {
			log += "it is " + known + ".\n"
		}
		if err := b.out.add("logs/a.log", []byte(b.redact.scrub(log))); err != nil {
			t.Fatal(err)
		}
		if err := b.out.close(); err != nil {
			t.Fatal(err)
		}
		text := unpack(t, &packed)
		for _, s := range p.secrets {
			if strings.Contains(text, s) {
				t.Errorf("seed %d: %s is in the bundle:\n%s", seed, s, text)
			}
		}
		for _, s := range p.plain {
			if !strings.Contains(text, s) {
				t.Errorf("seed %d: %s is not in the bundle:\n%s", seed, s, text)
			}
		}
	})
}

// unpack returns the texts of all files of an archive.
func unpack(t *testing.T, packed io.Reader) string {
	t.Helper()
	gz, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	var all bytes.Buffer
	for r := tar.NewReader(gz); ; {
		h, err := r.Next()
		if err == io.EOF {
			return all.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&all, h.Name)
		if _, err := io.Copy(&all, r); err != nil {
			t.Fatal(err)
		}
	}
}
