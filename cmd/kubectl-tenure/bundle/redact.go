package bundle

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
)

// leftOut stands where a value was.
const leftOut = "(left out)"

// A redactor leaves out what may be a secret. What it has left out of one object it leaves out of
// all texts that it sees later: a log may repeat it.
type redactor struct {
	mu    sync.RWMutex
	known map[string]bool
}

func newRedactor() *redactor { return &redactor{known: map[string]bool{}} }

// shortest is how long a value must be to be left out of other texts. A shorter one, such as "1",
// is in many words that have nothing to do with it.
const shortest = 6

// object returns an object as the bundle has it. o itself is changed.
func (r *redactor) object(o map[string]any) map[string]any {
	if o["kind"] == "NetworkAttachmentDefinition" {
		if spec, ok := o["spec"].(map[string]any); ok {
			spec["config"] = unreadableConfig(spec["config"])
		}
	}
	for key, v := range o {
		o[key] = r.value(key, v, false)
	}
	return o
}

// unreadableConfig returns a definition's config, or where it is no JSON what is wrong with it: its
// keys cannot be looked at.
func unreadableConfig(config any) any {
	text, ok := config.(string)
	if !ok || strings.TrimSpace(text) == "" {
		return config
	}
	if _, err := parse(text); err != nil {
		return fmt.Sprintf("%s: %d bytes that are no JSON", leftOut, len(text))
	}
	return config
}

// value returns the value of a key as the bundle has it. config says that it is of a configuration
// in JSON, whose keys anybody can have named, and not a field of Kubernetes'.
func (r *redactor) value(key string, v any, config bool) any {
	if isSecret(key, config) && !harmless(v, config) {
		r.learn(v)
		return leftOut
	}
	switch v := v.(type) {
	case map[string]any:
		return r.fields(key, v, config)
	case []any:
		for i := range v {
			if i > 0 && isSecretFlag(v[i-1], config) {
				r.learn(v[i])
				v[i] = leftOut
				continue
			}
			v[i] = r.value("", r.environment(key, v[i]), config)
		}
		return v
	case string:
		return r.text(v)
	}
	return v
}

// fields redacts the values of a map, which is that of key.
func (r *redactor) fields(key string, m map[string]any, config bool) any {
	if key == "metadata" && !config {
		withoutOthers(m)
	}
	// {"name": "PASSWORD", "value": "…"}
	for _, by := range []string{"name", "key"} {
		if name, ok := m[by].(string); ok && isSecret(name, true) && m["value"] != nil {
			r.learn(m["value"])
			m["value"] = leftOut
		}
	}
	for k, v := range m {
		if config && isEnvironment(key) {
			r.learn(v)
			m[k] = leftOut
			continue
		}
		m[k] = r.value(k, v, config)
	}
	return m
}

// withoutOthers leaves out of an object's metadata what is not Tenure's or of networks.
func withoutOthers(metadata map[string]any) {
	delete(metadata, "managedFields")
	all, ok := metadata["annotations"].(map[string]any)
	if !ok {
		return
	}
	maps.DeleteFunc(all, func(name string, _ any) bool { return !ownAnnotation(name) })
	if len(all) == 0 {
		delete(metadata, "annotations")
	}
}

// isEnvironment reports whether a key is that of a program's environment.
func isEnvironment(key string) bool { return key == "env" || key == "environment" }

// environment leaves the value out of an element of a container's environment.
func (r *redactor) environment(key string, element any) any {
	if !isEnvironment(key) {
		return element
	}
	if m, ok := element.(map[string]any); ok {
		if v, has := m["value"]; has && v != "" {
			r.learn(v)
			m["value"] = leftOut
		}
		return m
	}
	r.learn(element) // NAME=VALUE
	return leftOut
}

// learn remembers a value that is left out.
func (r *redactor) learn(v any) {
	switch v := v.(type) {
	case map[string]any:
		for _, x := range v {
			r.learn(x)
		}
	case []any:
		for _, x := range v {
			r.learn(x)
		}
	case nil, bool:
	default:
		text := strings.TrimSpace(fmt.Sprint(v))
		if len(text) < shortest || text == leftOut {
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.known[text] = true
	}
}

// text returns a text as the bundle has it. One that is JSON is looked at by its keys.
func (r *redactor) text(text string) string {
	if t := strings.TrimSpace(text); strings.HasPrefix(t, "{") || strings.HasPrefix(t, "[") {
		if v, err := parse(t); err == nil {
			var out bytes.Buffer
			enc := json.NewEncoder(&out)
			enc.SetEscapeHTML(false)
			if err := enc.Encode(r.value("", v, true)); err == nil {
				return strings.TrimSuffix(out.String(), "\n")
			}
		}
	}
	return r.scrub(text)
}

// scrub leaves out of a text for people what looks like a secret, and what is known to be one.
func (r *redactor) scrub(text string) string {
	for _, p := range patterns {
		text = p.looks.ReplaceAllString(text, p.instead)
	}
	return r.repeated(text)
}

// repeated leaves out of a text what was left out of an object.
func (r *redactor) repeated(text string) string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for secret := range r.known {
		if strings.Contains(text, secret) {
			text = strings.ReplaceAll(text, secret, leftOut)
		}
	}
	return text
}

// patterns are what secrets look like in text, and what stands instead.
var patterns = []struct {
	looks   *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|$)`), leftOut},
	{regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?`), leftOut},
	{regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://)[^/\s@"'\\]+@`), "${1}" + leftOut + "@"},
	{regexp.MustCompile(`(?i)([\w.-]*(?:` + strings.Join(words, "|") + `)[\w.-]*\\?["']?\s*[:=]\s*)(?:(?:basic|bearer|digest)\s+)?(?:\(left out\)|\\"(?:\\\\\\"|[^"\\]|\\[^"])*\\"|"(?:[^"\\]|\\.)*"|'[^']*'|[^\s,;&"'}\])\\]+)`), "${1}" + leftOut},
	{regexp.MustCompile(`(?i)\b(bearer)\s+[A-Za-z0-9+/._~-]*[0-9+/=._~-][A-Za-z0-9+/=._~-]*`), "${1} " + leftOut},
}

// words are in the names of what is secret.
var words = []string{
	"passw(?:or)?d", "passphrase", "secret", "token", "api[-_]?key", "private[-_]?key", "priv[-_]?key", "access[-_]?key", "shared[-_]?key", "signing[-_]?key",
	"encryption[-_]?key", "client[-_]?key", "ssh[-_]?key", "auth[-_]?key", "credential", "authorization", "kubeconfig", "cookie",
}

var (
	secretName = regexp.MustCompile(`(?i)` + strings.Join(words, "|"))
	// In a configuration these are secrets too. Of Kubernetes' fields, "key" names a label.
	secretInConfig = regexp.MustCompile(`(?i)^(?:key|pass|pwd|pin|psk|auth|bearer|.*[-_]psk|.*[-_]key|.*Key|.*[-_]pwd)$`)
)

// isSecret reports whether the value of a key may be a secret. Kubernetes' field secretName says
// which Secret there is.
func isSecret(key string, config bool) bool {
	return secretName.MatchString(key) && (config || key != "secretName") || config && secretInConfig.MatchString(key)
}

// isSecretFlag reports whether the next element of a list is the value of a flag, and secret.
func isSecretFlag(v any, config bool) bool {
	flag, ok := v.(string)
	return ok && strings.HasPrefix(flag, "-") && !strings.Contains(flag, "=") && isSecret(strings.TrimLeft(flag, "-"), config)
}

// namesSecrets are the fields of Kubernetes' by which a pod says which Secret it wants, and how.
var namesSecrets = []string{"secretName", "name", "optional", "items", "defaultMode", "path", "expirationSeconds", "audience", "key"}

// harmless reports whether a value under a secret's name tells nothing: it is empty, a bool, or the
// path of a file of credentials; or of Kubernetes' fields, where a Secret is.
func harmless(v any, config bool) bool {
	switch v := v.(type) {
	case nil, bool:
		return true
	case string:
		return v == "" || strings.HasPrefix(v, "/") && strings.HasSuffix(v, "kubeconfig")
	case map[string]any:
		if config {
			return false
		}
		for key, x := range v {
			if _, text := x.(string); !slices.Contains(namesSecrets, key) || key == "items" && text {
				return false
			}
		}
		return true
	case []any: // imagePullSecrets
		return !config && !slices.ContainsFunc(v, func(x any) bool { m, ok := x.(map[string]any); return !ok || !harmless(m, false) })
	}
	return false
}

// ownAnnotation reports whether an annotation is Tenure's, or of the networks of pods.
func ownAnnotation(name string) bool {
	domain, _, _ := strings.Cut(name, "/")
	return domain == "tenure.dev" || domain == "k8s.v1.cni.cncf.io" || domain == "openstack.org" || name == nad.NetworkStatusAnnot
}

// parse reads one value in JSON, and nothing after it.
func parse(text string) (v any, err error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err = d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("more than one value")
	}
	return v, nil
}
