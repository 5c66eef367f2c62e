package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/pflag"

	"github.com/tenure-ipam/tenure/cmd/tenure-controller/controller"
	"github.com/tenure-ipam/tenure/ipam/kube"
)

const usage = `tenure-controller is Tenure's cluster controller. Run two of it or more: one leads,
and another takes over when it is gone.

In a cluster it needs no flags: it takes its namespace from POD_NAMESPACE and its
credentials from its service account. Elsewhere, give --kubeconfig.
There, be that service account too: to anybody else the policies that deploy/
installs refuse the deletion of leases.

Flags:
`

// options are the flags.
type options struct {
	controller controller.Config
	kubeconfig string
	debug      bool
	version    bool
}

// run reads the flags and works until ctx ends.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) error {
	opts, err := parse(args, getenv, stderr)
	if errors.Is(err, pflag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	if opts.version {
		_, err = fmt.Fprintln(stdout, "tenure-controller", version)
		return err
	}
	log := kube.Logger(stderr, opts.debug)
	rc, err := kube.Config(opts.kubeconfig)
	if err != nil {
		return err
	}
	log.InfoContext(ctx, "tenure-controller starts", "version", version)
	c, err := controller.New(opts.controller, rc, log)
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

func parse(args []string, getenv func(string) string, stderr io.Writer) (options, error) {
	opts := options{controller: controller.DefaultConfig()}
	c := &opts.controller
	if namespace := getenv("POD_NAMESPACE"); namespace != "" {
		c.RegistrationNamespace = namespace
	}
	flags := pflag.NewFlagSet("tenure-controller", pflag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { fmt.Fprint(stderr, usage, flags.FlagUsages()) }
	flags.StringVar(&opts.kubeconfig, "kubeconfig", "", "path of a kubeconfig; empty: the service account of this pod")
	flags.BoolVar(&c.LeaderElection, "leader-election", c.LeaderElection, "elect one leader among the controllers; without it this one works at once")
	flags.IntVar(&c.Workers, "workers", c.Workers, "how many claims are worked on at once")
	flags.DurationVar(&c.Idle, "idle", c.Idle, "how long a block without claims is kept for the next ones")
	flags.BoolVar(&c.StatefulSetClaims, "statefulset-claims", c.StatefulSetClaims, "make the claims that StatefulSets ask for by the annotation tenure.dev/claims")
	flags.BoolVar(&c.MultiNetwork, "multi-network", false, "serve PodNetworks: see docs/howto/pod-networks.md")
	flags.BoolVar(&c.DefaultPodNetwork, "default-pod-network", c.DefaultPodNetwork, "make the PodNetwork that stands for the cluster's default network, and make it again when it is gone; without --multi-network of no effect")
	flags.BoolVar(&c.VIFs, "vifs", false, "decide about the interfaces of pods that select definitions with the annotation tenure.dev/vif or openstack.org/kuryr-config: make a claim for each, and write the annotation tenure.dev/vifs")
	flags.BoolVar(&c.KuryrAnnotation, "kuryr-annotation", false, "write these interfaces into the annotation openstack.org/kuryr-vif as well, for programs that were made for Kuryr; without --vifs of no effect")
	flags.BoolVar(&c.Names, "names", false, "publish the addresses that pods have on secondary networks for headless Services with the annotation tenure.dev/network, so that cluster DNS knows them: see docs/howto/names.md")
	flags.StringVar(&c.NeutronClouds, "neutron-clouds", "", "path of the clouds.yaml by which OpenStack's Neutron is reached, for pools with spec.source.neutron; empty: no such pool is served")
	flags.StringVar(&c.NeutronCloud, "neutron-cloud", c.NeutronCloud, "the cloud of --neutron-clouds that counts")
	flags.StringSliceVar(&c.NeutronSubnetNamespaces, "neutron-subnet-namespaces", nil, "namespaces whose definitions may describe a subnet in the annotation tenure.dev/vif, which is then made in Neutron, with --vifs")
	flags.StringVar(&c.Health, "health", c.Health, "address for /healthz and /readyz; empty: none")
	flags.StringVar(&c.Metrics, "metrics", c.Metrics, "address for /metrics; empty: none")
	flags.StringVar(&c.Webhooks, "webhooks", c.Webhooks, "address for the webhooks that check and gate pods with PodNetworks, with --multi-network; empty: none")
	flags.StringVar(&c.WebhookCertificate, "webhook-certificate", c.WebhookCertificate, "directory with the certificate of the webhooks and its key, tls.crt and tls.key; it is read again at each connection")
	flags.BoolVar(&c.Profiles, "profiles", false, "serve profiles of this process at /debug/pprof/ where /metrics is, to whoever reaches that address: see docs/operations/performance.md")
	flags.BoolVar(&opts.debug, "debug", false, "log more")
	flags.BoolVar(&opts.version, "version", false, "print the version, and do nothing")
	hidden(flags, c)
	if err := flags.Parse(args); err != nil {
		return opts, fmt.Errorf("%w: see tenure-controller --help, and remove what it does not list (Helm: controller.extraArgs)", err)
	}
	if flags.NArg() > 0 {
		return opts, fmt.Errorf("unexpected argument %q: see tenure-controller --help", flags.Arg(0))
	}
	if c.Profiles && c.Metrics == "" {
		return opts, errors.New("--profiles without an address to serve them at: give --metrics, or leave --profiles out")
	}
	return opts, nil
}

// hidden adds the flags that are for tests, and those of earlier versions.
func hidden(flags *pflag.FlagSet, c *controller.Config) {
	flags.StringVar(&c.RegistrationNamespace, "registration-namespace", c.RegistrationNamespace, "namespace of the nodes' registrations and of the leader's lease (default: $POD_NAMESPACE)")
	flags.StringVar(&c.RegistrationNamespace, "seat-namespace", c.RegistrationNamespace, "deprecated: use --registration-namespace")
	flags.DurationVar(&c.LeaseDuration, "leader-lease-duration", c.LeaseDuration, "how long a leader that has died is waited for; one that is stopped hands over at once")
	flags.DurationVar(&c.RenewDeadline, "leader-renew-deadline", c.RenewDeadline, "how long a leader tries to renew its lease before it gives up")
	flags.DurationVar(&c.RetryPeriod, "leader-retry-period", c.RetryPeriod, "how often a leader renews, and the others look")
	flags.DurationVar(&c.CountsEvery, "counts-every", c.CountsEvery, "how often at most a pool's counts are written")
	for _, name := range []string{"registration-namespace", "leader-lease-duration", "leader-renew-deadline", "leader-retry-period", "counts-every"} {
		_ = flags.MarkHidden(name) // it is there
	}
	_ = flags.MarkDeprecated("seat-namespace", "use --registration-namespace") // likewise
}
