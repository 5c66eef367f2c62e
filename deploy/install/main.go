// Command install installs Tenure into a cluster of the kubeconfig, that of the current
// context unless told another, and removes it. `make manifest`, `make install` and
// `make uninstall` run it in the top directory of the source; it needs kubectl.
//
//	go run ./deploy/install manifest  -registry R [-tag T] [-attach]              prints what is to be installed
//	go run ./deploy/install install   -registry R [-tag T] [-attach] [-context C] [-timeout D]
//	go run ./deploy/install uninstall [-force] [-context C] [-timeout D]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "install:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	registry, tag string
	context       string
	attach, force bool
	timeout       time.Duration
}

const usage = "usage: install manifest | install | uninstall [flags]"

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	var o options
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.StringVar(&o.registry, "registry", "", "registry and path that the images' names begin with")
	flags.StringVar(&o.tag, "tag", "dev", "the images' tag")
	flags.StringVar(&o.context, "context", "", "of the kubeconfig (default the current one)")
	flags.BoolVar(&o.attach, "attach", false, "with the meta-plugin tenure-attach, in Multus's place")
	flags.BoolVar(&o.force, "force", false, "uninstall: also while pods and claims have addresses")
	flags.DurationVar(&o.timeout, "timeout", 3*time.Minute, "how long nothing may get better before it counts as failed")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q; %s", flags.Arg(0), usage)
	}
	// It is wanted at the very end too, when much has been removed.
	if _, err := exec.LookPath("kubectl"); err != nil {
		return fmt.Errorf("kubectl must be in the PATH: %w", err)
	}
	if args[0] == "manifest" {
		text, err := o.render(ctx)
		if err != nil {
			return err
		}
		_, err = out.Write(text)
		return err
	}
	c, err := connect(o.context, out)
	if err != nil {
		return err
	}
	c.timeout = o.timeout
	switch args[0] {
	case "install":
		return c.install(ctx, o)
	case "uninstall":
		return c.uninstall(ctx, o)
	}
	return errors.New(usage)
}

// namespace is where Tenure lives: its policies name the service accounts there.
const namespace = "tenure-system"

// Names of what runs.
const (
	agentName      = "tenured"
	controllerName = "tenure-controller"
)

// every is how often it is looked whether something has got better.
const every = time.Second

// A cluster is that of the kubeconfig.
type cluster struct {
	client.Client
	context string // of the kubeconfig
	out     io.Writer
	timeout time.Duration
	// notReady says since when nodes have been NotReady whenever they were looked at.
	notReady map[string]time.Time
}

// connect makes the client for a context, the current one if it is empty, and says which
// one that is. It makes no call.
func connect(name string, out io.Writer) (*cluster, error) {
	config := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), &clientcmd.ConfigOverrides{CurrentContext: name})
	raw, err := config.RawConfig()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	if name == "" {
		name = raw.CurrentContext
	}
	if name == "" {
		return nil, errors.New("the kubeconfig has no current context: set KUBECONFIG, name one by CONTEXT= (-context), or run kubectl config use-context")
	}
	rc, err := config.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	api, err := client.New(rc, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("reach the cluster: %w", err)
	}
	fmt.Fprintf(out, "context %s, API server %s\n", name, rc.Host)
	return &cluster{Client: api, context: name, out: out, notReady: map[string]time.Time{}}, nil
}

func (c *cluster) say(format string, args ...any) { fmt.Fprintf(c.out, format+"\n", args...) }
