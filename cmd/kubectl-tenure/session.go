package main

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
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/screen"
	"github.com/tenure-ipam/tenure/ipam/kube"
)

// session is what a command has of its process and of the cluster that it is about.
type session struct {
	stdin          io.Reader
	stdout, stderr io.Writer

	kubeconfig string
	overrides  clientcmd.ConfigOverrides

	api    *kube.API // once connect has been called
	client client.Client
	ahead  atomic.Int64 // by how many nanoseconds the API server's clock is ahead of this machine's
}

// screen returns where the session's results go.
func (s *session) screen() screen.Screen { return screen.Of(s.stdout) }

// addFlags adds the flags that every command has: kubectl's own.
func (s *session) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&s.kubeconfig, "kubeconfig", "", "path of a kubeconfig (default: as kubectl has it)")
	clientcmd.BindOverrideFlags(&s.overrides, flags, clientcmd.RecommendedConfigOverrideFlags(""))
}

func (s *session) config() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = s.kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &s.overrides)
}

// space returns the namespace that the command is about.
func (s *session) space() (string, error) {
	namespace, _, err := s.config().Namespace()
	if err != nil {
		return "", unreadable(err)
	}
	return namespace, nil
}

// podNamed reads the name of a pod as an argument has it: NAME, or NAMESPACE/NAME, as output has
// it.
func (s *session) podNamed(verb, arg string) (namespace, name string, err error) {
	namespace, name, ok := strings.Cut(arg, "/")
	if !ok {
		namespace, err = s.space()
		return namespace, arg, err
	}
	if namespace == "" || name == "" || strings.Contains(name, "/") {
		return "", "", usagef("%s: %q names no pod: write NAME, or NAMESPACE/NAME", verb, arg)
	}
	if given := s.overrides.Context.Namespace; given != "" && given != namespace {
		return "", "", usagef("%s: %s is in namespace %s, and --namespace is %s: leave one of them out", verb, arg, namespace, given)
	}
	return namespace, name, nil
}

// connect makes the clients, if there are none yet. It makes no call.
func (s *session) connect() error {
	if s.api != nil {
		return nil
	}
	rc, err := s.config().ClientConfig()
	if err != nil {
		return unreadable(err)
	}
	rc.QPS, rc.Burst = -1, -1 // one person asks; the API server has priorities of its own
	rc.Wrap(func(next http.RoundTripper) http.RoundTripper { return serverClock{next, s} })
	s.api, s.client, err = kube.Dial(rc)
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
	s *session
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

// now returns the time by the API server's clock, once it has answered, to a second. The
// cluster's objects have times by that clock. The clock of this machine may be wrong.
func (s *session) now() time.Time { return time.Now().Add(time.Duration(s.ahead.Load())) }

// age writes how long ago t was.
func (s *session) age(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return duration.HumanDuration(max(0, s.now().Sub(t)))
}

// pageSize is how many objects one answer of the API server has.
const pageSize = 500

// listAll lists in pages, and returns what keep takes out of each. A list that takes longer
// than the API server remembers a state, some five minutes, goes on with what is there
// then: each object that stays is in all once, as it was at a time since the list began.
// One that cannot go on is begun anew: keep may be shown an object again.
func listAll[T any, PL interface {
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
			return nil, fmt.Errorf("list every %s: %w", kindOf(page), err)
		}
		all = append(all, keep(page)...)
		if next = page.GetContinue(); next == "" {
			return all, nil
		}
	}
}

// kindOf returns what a list is of, such as IPLease.
func kindOf(list client.ObjectList) string {
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
func (s *session) mustExist(ctx context.Context, kind string, name client.ObjectKey, into client.Object) error {
	err := s.client.Get(ctx, name, into)
	switch {
	case err == nil || forbidden(err):
		return nil
	case apierrors.IsNotFound(err):
		return noneOfName(kind, name.Name)
	}
	return fmt.Errorf("read %s %s: %w", kind, name.Name, err)
}

// poolExists, nodeExists and namespaceExists check what flags name; "" names nothing.
func (s *session) poolExists(ctx context.Context, name string) error {
	if name == "" {
		return nil
	}
	return s.mustExist(ctx, "pool", client.ObjectKey{Name: name}, &v1alpha1.IPPool{})
}

func (s *session) nodeExists(ctx context.Context, name string) error {
	if name == "" {
		return nil
	}
	return s.mustExist(ctx, "node", client.ObjectKey{Name: name}, &corev1.Node{})
}

func (s *session) namespaceExists(ctx context.Context, name string) error {
	if name == "" {
		return nil
	}
	return s.mustExist(ctx, "namespace", client.ObjectKey{Name: name}, &corev1.Namespace{})
}

func leasesIn(l *v1alpha1.IPLeaseList) []v1alpha1.IPLease          { return l.Items }
func subLeasesIn(l *v1alpha1.IPSubLeaseList) []v1alpha1.IPSubLease { return l.Items }
func poolsIn(l *v1alpha1.IPPoolList) []v1alpha1.IPPool             { return l.Items }
func claimsIn(l *ipamclaims.IPAMClaimList) []ipamclaims.IPAMClaim  { return l.Items }

// forbidden reports whether err says that this user may not.
func forbidden(err error) bool { return apierrors.IsForbidden(err) }
