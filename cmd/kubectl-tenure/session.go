package main

import (
	"fmt"
	"io"

	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/ipam/cluster"
)

// session is what a command has of its process and of the cluster that it is about.
type session struct {
	stdin          io.Reader
	stdout, stderr io.Writer

	kubeconfig, context, namespace string

	api    *cluster.API // once connect has been called
	client client.Client
}

// addFlags adds the flags that every command has.
func (s *session) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&s.kubeconfig, "kubeconfig", "", "path of a kubeconfig (default: as kubectl has it)")
	flags.StringVar(&s.context, "context", "", "context of the kubeconfig")
	flags.StringVarP(&s.namespace, "namespace", "n", "", "namespace (default: the context's)")
}

func (s *session) config() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = s.kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: s.context}
	overrides.Context.Namespace = s.namespace
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
}

// space returns the namespace that the command is about.
func (s *session) space() (string, error) {
	namespace, _, err := s.config().Namespace()
	if err != nil {
		return "", fmt.Errorf("read the kubeconfig: %w", err)
	}
	return namespace, nil
}

// connect makes the clients, if there are none yet. It makes no call.
func (s *session) connect() error {
	if s.api != nil {
		return nil
	}
	rc, err := s.config().ClientConfig()
	if err != nil {
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	s.api, s.client, err = cluster.Dial(rc)
	return err
}
