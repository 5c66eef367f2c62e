// Package session is what every verb of kubectl tenure has: the cluster that it asks, the
// arguments and flags that it is given and how a shell completes them, and where it writes.
package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/screen"
	"github.com/tenure-ipam/tenure/ipam/kube"
)

// Session is what a command has of its process and of the cluster that it is about.
type Session struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer

	Kubeconfig string
	Overrides  clientcmd.ConfigOverrides

	API    *kube.API // once [Session.Connect] has been called
	Client client.Client
	Rest   *rest.Config // of these clients
	ahead  atomic.Int64 // by how many nanoseconds the API server's clock is ahead of this machine's
}

// Screen returns where the session's results go.
func (s *Session) Screen() screen.Screen { return screen.Of(s.Stdout) }

// AddFlags adds the flags that every command has: kubectl's own.
func (s *Session) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&s.Kubeconfig, "kubeconfig", "", "path of a kubeconfig (default: as kubectl has it)")
	clientcmd.BindOverrideFlags(&s.Overrides, flags, clientcmd.RecommendedConfigOverrideFlags(""))
}

func (s *Session) config() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = s.Kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &s.Overrides)
}

// Namespace returns the namespace that the command is about.
func (s *Session) Namespace() (string, error) {
	namespace, _, err := s.config().Namespace()
	if err != nil {
		return "", unreadable(err)
	}
	return namespace, nil
}

// PodNamed reads the name of a pod as an argument has it: NAME, or NAMESPACE/NAME, as output has
// it.
func (s *Session) PodNamed(verb, arg string) (namespace, name string, err error) {
	namespace, name, ok := strings.Cut(arg, "/")
	if !ok {
		namespace, err = s.Namespace()
		return namespace, arg, err
	}
	if namespace == "" || name == "" || strings.Contains(name, "/") {
		return "", "", Usagef("%s: %q names no pod: write NAME, or NAMESPACE/NAME", verb, arg)
	}
	if given := s.Overrides.Context.Namespace; given != "" && given != namespace {
		return "", "", Usagef("%s: %s is in namespace %s, and --namespace is %s: leave one of them out", verb, arg, namespace, given)
	}
	return namespace, name, nil
}

// Connect makes the clients, if there are none yet. It makes no call.
func (s *Session) Connect() error {
	if s.API != nil {
		return nil
	}
	rc, err := s.config().ClientConfig()
	if err != nil {
		return unreadable(err)
	}
	rc.QPS, rc.Burst = -1, -1 // one person asks; the API server has priorities of its own
	rc.Wrap(func(next http.RoundTripper) http.RoundTripper { return serverClock{next, s} })
	s.Rest = rc
	s.API, s.Client, err = kube.Dial(rc)
	return err
}

// unreadable says why there is no cluster to call.
func unreadable(err error) error {
	if clientcmd.IsEmptyConfig(err) {
		return errors.New("read the kubeconfig: there is none, or it is empty; " +
			"set KUBECONFIG, or give --kubeconfig")
	}
	return fmt.Errorf("read the kubeconfig: %w", err)
}

// serverClock reads the API server's clock off its answers.
type serverClock struct {
	http.RoundTripper
	s *Session
}

// RoundTrip implements [http.RoundTripper].
func (c serverClock) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := c.RoundTripper.RoundTrip(req)
	if err == nil {
		if t, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
			c.s.ahead.Store(int64(time.Until(t)))
		}
	}
	return resp, err
}

// Now returns the time by the API server's clock, once it has answered, to a second. The
// cluster's objects have times by that clock. The clock of this machine may be wrong.
func (s *Session) Now() time.Time { return time.Now().Add(time.Duration(s.ahead.Load())) }

// Age writes how long ago t was.
func (s *Session) Age(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return duration.HumanDuration(max(0, s.Now().Sub(t)))
}

// pageSize is how many objects one answer of the API server has.
const pageSize = 500

// ListAll lists in pages, and returns what keep takes out of each. A list that takes longer
// than the API server remembers a state, some five minutes, goes on with what is there
// then: each object that stays is in all once, as it was at a time since the list began.
// One that cannot go on is begun anew: keep may be shown an object again.
func ListAll[T any, PL interface {
	*L
	client.ObjectList
}, L any](ctx context.Context, c client.Client, page PL, keep func(PL) []T, opts ...client.ListOption) (all []T, err error) {
	empty := *page
	opts = append(opts, client.Limit(pageSize))
	for next, begun := "", 1; ; {
		*page = empty // what is decoded into a page that was used before would mix with it
		err := c.List(ctx, page, append(slices.Clip(opts), client.Continue(next))...)
		if next != "" && apierrors.IsResourceExpired(err) {
			if rest := remainder(err); rest != "" && rest != next {
				next = rest
				continue
			}
			if begun < listTries {
				all, next = nil, ""
				begun++
				continue
			}
		}
		if err != nil {
			return nil, fmt.Errorf("list every %s: %w", KindOf(page), err)
		}
		all = append(all, keep(page)...)
		if next = page.GetContinue(); next == "" {
			return all, nil
		}
	}
}

// KindOf returns what a list is of, such as IPLease.
func KindOf(list client.ObjectList) string {
	name := fmt.Sprintf("%T", list)
	return strings.TrimSuffix(name[strings.LastIndexByte(name, '.')+1:], "List")
}

// listTries is how often a list is begun anew, if the API server cannot go on with it.
const listTries = 3

// remainder returns what, as err says, continues a list whose state the API server has
// forgotten with the state that there is now; "" if err does not say.
func remainder(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return ""
	}
	return status.Status().Continue
}

// mustExist returns an error if the object that the user has named, by a flag, does not exist.
// It returns nil if the user may not read it.
func (s *Session) mustExist(ctx context.Context, kind string, name client.ObjectKey, into client.Object) error {
	err := s.Client.Get(ctx, name, into)
	switch {
	case err == nil || Forbidden(err):
		return nil
	case apierrors.IsNotFound(err):
		return NoneOfName(kind, name.Name)
	}
	return fmt.Errorf("read %s %s: %w", kind, name.Name, err)
}

// PoolExists returns an error if a flag names a pool that does not exist; "" names none.
func (s *Session) PoolExists(ctx context.Context, name string) error {
	if name == "" {
		return nil
	}
	return s.mustExist(ctx, "pool", client.ObjectKey{Name: name}, &v1alpha1.IPPool{})
}

// NodeExists is as [Session.PoolExists], of a node.
func (s *Session) NodeExists(ctx context.Context, name string) error {
	if name == "" {
		return nil
	}
	return s.mustExist(ctx, "node", client.ObjectKey{Name: name}, &corev1.Node{})
}

// NamespaceExists is as [Session.PoolExists], of a namespace.
func (s *Session) NamespaceExists(ctx context.Context, name string) error {
	if name == "" {
		return nil
	}
	return s.mustExist(ctx, "namespace", client.ObjectKey{Name: name}, &corev1.Namespace{})
}

// LeasesIn returns the leases of a list: what [ListAll] keeps where it is to keep all.
func LeasesIn(l *v1alpha1.IPLeaseList) []v1alpha1.IPLease { return l.Items }

// SubLeasesIn returns the sub-leases of a list.
func SubLeasesIn(l *v1alpha1.IPSubLeaseList) []v1alpha1.IPSubLease { return l.Items }

// PoolsIn returns the pools of a list.
func PoolsIn(l *v1alpha1.IPPoolList) []v1alpha1.IPPool { return l.Items }

// ClaimsIn returns the claims of a list.
func ClaimsIn(l *ipamclaims.IPAMClaimList) []ipamclaims.IPAMClaim { return l.Items }

// Forbidden reports whether err says that this user may not.
func Forbidden(err error) bool { return apierrors.IsForbidden(err) }
