package session

import (
	"context"
	"slices"
	"strings"
	"time"

	ipamclaims "github.com/k8snetworkplumbingwg/ipamclaims/pkg/crd/ipamclaims/v1alpha1"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
)

// completeTimeout is how long somebody who has pressed the tabulator waits.
const completeTimeout = 3 * time.Second

// PoolNames completes names of pools. Like the others that complete, it has none where the cluster
// does not answer.
func (s *Session) PoolNames(c *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
	return s.names(c, given, v1alpha1.GroupVersion.WithKind("IPPoolList"), false)
}

// LeaseNames completes names of leases.
func (s *Session) LeaseNames(c *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
	return s.names(c, given, v1alpha1.GroupVersion.WithKind("IPLeaseList"), false)
}

// ClaimNames completes names of claims of the namespace.
func (s *Session) ClaimNames(c *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
	return s.names(c, given, ipamclaims.SchemeGroupVersion.WithKind("IPAMClaimList"), true)
}

// OnePod completes a pod as the first argument alone.
func (s *Session) OnePod(c *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(given) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return s.names(c, nil, corev1.SchemeGroupVersion.WithKind("PodList"), true)
}

// OneNode completes a node as the first argument alone.
func (s *Session) OneNode(c *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(given) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return s.NodeNames(c, nil, "")
}

// NodeNames completes names of nodes.
func (s *Session) NodeNames(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return s.names(c, nil, corev1.SchemeGroupVersion.WithKind("NodeList"), false)
}

// names returns the names of the objects of a kind that have not been given yet.
func (s *Session) names(c *cobra.Command, given []string, list schema.GroupVersionKind, namespaced bool) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(c.Context(), completeTimeout)
	defer cancel()
	var opts []client.ListOption
	if namespaced {
		namespace, err := s.Namespace()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		opts = append(opts, client.InNamespace(namespace))
	}
	if s.Connect() != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	names, err := s.namesOf(ctx, list, opts...)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return slices.DeleteFunc(names, func(n string) bool { return slices.Contains(given, n) }), cobra.ShellCompDirectiveNoFileComp
}

// namesOf lists names: nothing else of the objects is read.
func (s *Session) namesOf(ctx context.Context, list schema.GroupVersionKind, opts ...client.ListOption) ([]string, error) {
	page := &metav1.PartialObjectMetadataList{}
	page.SetGroupVersionKind(list)
	return ListAll(ctx, s.Client, page, func(l *metav1.PartialObjectMetadataList) (names []string) {
		for i := range l.Items {
			names = append(names, l.Items[i].Name)
		}
		return names
	}, opts...)
}

// CompleteFlag has a flag of c completed.
func (s *Session) CompleteFlag(c *cobra.Command, flag string, by cobra.CompletionFunc) {
	if err := c.RegisterFlagCompletionFunc(flag, by); err != nil { // c has no such flag
		panic(err)
	}
}

// Complete has what the flags of all commands can be completed.
func (s *Session) Complete(root *cobra.Command) {
	s.CompleteFlag(root, "namespace", func(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return s.names(c, nil, corev1.SchemeGroupVersion.WithKind("NamespaceList"), false)
	})
	s.CompleteFlag(root, "context", s.contexts)
	for _, c := range root.Commands() {
		if f := c.Flags().Lookup("output"); f != nil {
			_, formats, _ := strings.Cut(f.Usage, ": ")
			s.CompleteFlag(c, "output", cobra.FixedCompletions(strings.Split(formats, ", "), cobra.ShellCompDirectiveNoFileComp))
		}
	}
}

func (s *Session) contexts(*cobra.Command, []string, string) (names []string, _ cobra.ShellCompDirective) {
	raw, err := s.config().RawConfig()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	for name := range raw.Contexts {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, cobra.ShellCompDirectiveNoFileComp
}
