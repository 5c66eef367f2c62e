package nodes_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	authentication "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tenure-ipam/tenure/cmd/tenured/daemon"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/test/fleet"
	"github.com/tenure-ipam/tenure/test/proof"
)

// tokenOf issues a token for the agents that ends with a Secret of this name.
func tokenOf(t *testing.T, name string) string {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: kube.DefaultRegistrationNamespace, Name: name}}
	fleet.Create(t, kc, secret)
	c, err := cp.ServiceAccount(t.Context(), kube.DefaultRegistrationNamespace, "tenured",
		&authentication.BoundObjectReference{Kind: "Secret", APIVersion: "v1", Name: name, UID: secret.UID})
	if err != nil {
		t.Fatal(err)
	}
	return c.BearerToken
}

// place puts a token where agents read it, as a kubelet does: whole, in one step.
func place(t *testing.T, path, token string) {
	t.Helper()
	must(t, os.WriteFile(path+".new", []byte(token), 0o600))
	must(t, os.Rename(path+".new", path))
}

// The agents' tokens are replaced while they run, and the old ones end: heartbeats
// and leases go on.
func TestTokensRotate(t *testing.T) {
	proof.Only(t)
	const fence = 8 * time.Second
	path := filepath.Join(t.TempDir(), "token")
	first := tokenOf(t, "token-1")
	place(t, path, first)
	cfg := rest.AnonymousClientConfig(cp.Config())
	cfg.BearerTokenFile = path

	w := newNetwork(t, "tokens", 0, cidr("10.55.0.0/24")) // blocks of one: every ADD needs the API server
	w.fleet = fleet.New(t, cfg)
	w.fleet.Change = func(c *daemon.Config) { quick(c); c.Agent.Fence = fence }
	w.start(3)
	attachAll := func() {
		t.Helper()
		for _, n := range w.nodes {
			for range 4 {
				p := &pod{Interface: w.sandbox(), node: n}
				if err := p.attach(); err != nil {
					t.Error(err)
				}
			}
		}
	}
	attachAll()

	place(t, path, tokenOf(t, "token-2"))
	old := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: kube.DefaultRegistrationNamespace, Name: "token-1"}}
	fleet.Delete(t, kc, old)
	stale := rest.AnonymousClientConfig(cp.Config())
	stale.BearerToken = first
	k, err := kubernetes.NewForConfig(stale)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, func() error { // the API server remembers it for some seconds
		_, err := k.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authentication.SelfSubjectReview{}, metav1.CreateOptions{})
		if !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("the old token: %w; want it refused", err)
		}
		return nil
	})
	attachAll()
	// And for longer than F: each node's heartbeats are accepted.
	beats := regTurns(t, w)
	eventually(t, 10*fence, func() error {
		for name, turn := range regTurns(t, w) {
			if turn < beats[name]+5 { // beats come every F/4
				return fmt.Errorf("the registration of %s is at turn %d after %d", name, turn, beats[name])
			}
		}
		return nil
	})
	attachAll()
	for _, n := range w.nodes {
		n.Stop()
	}
	fleet.Delete(t, kc, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: old.Namespace, Name: "token-2"}})
}

// regTurns returns how often each node's registration has been written.
func regTurns(t *testing.T, w *network) map[string]int64 {
	t.Helper()
	turns := map[string]int64{}
	for _, n := range w.nodes {
		s, _, err := api.ReadRegistration(t.Context(), n.Config().Agent.Node)
		if err != nil {
			t.Fatal(err)
		}
		turns[n.Name] = s.Writes
	}
	return turns
}
