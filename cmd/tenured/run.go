package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/pflag"

	"github.com/tenure-ipam/tenure/attach/node/devices"
	"github.com/tenure-ipam/tenure/attach/node/ready"
	"github.com/tenure-ipam/tenure/attach/plan"
	"github.com/tenure-ipam/tenure/cmd/tenured/daemon"
	"github.com/tenure-ipam/tenure/ipam/cniresults"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/node/agent"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

const usage = `tenured is Tenure's node agent. It runs once on each node, as root.

In a cluster it needs no flags: it takes its node's name from NODE_NAME and its
credentials from its service account. Elsewhere, give --node and --kubeconfig.
There, be that service account too, by a token that is bound to a pod of the node.
The policies that deploy/ installs let nobody else give leases back, so that under
another user a pool fills up; and they refuse what a token writes that names no node.
"tenured install" installs the CNI plugins, "tenured uninstall" removes all that Tenure
has put on a node, "tenured history" says who had an address, and "tenured hotplug" changes the
networks of running pods: see their own --help.

Flags:
`

// options are the flags.
type options struct {
	daemon     daemon.Config
	kubeconfig string
	bootFile   string
	debug      bool
	version    bool
}

// run reads the flags and serves until ctx ends, or does what another verb says.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) error {
	verbs := map[string]func(context.Context, []string, io.Writer, io.Writer) error{"install": install, "uninstall": uninstall, "history": showHistory, "hotplug": runHotplug}
	if len(args) > 0 && verbs[args[0]] != nil {
		err := verbs[args[0]](ctx, args[1:], stdout, stderr)
		if errors.Is(err, pflag.ErrHelp) {
			return nil
		}
		return err
	}
	opts, err := parse(args, getenv, stderr)
	if errors.Is(err, pflag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	if opts.version {
		_, err = fmt.Fprintln(stdout, "tenured", version)
		return err
	}
	log := kube.Logger(stderr, opts.debug)
	rc, err := kube.Config(opts.kubeconfig)
	if err != nil {
		return err
	}
	log.InfoContext(ctx, "tenured starts", "version", version)
	d, err := daemon.New(opts.daemon, rc, log)
	if err != nil {
		return err
	}
	return d.Run(ctx)
}

func parse(args []string, getenv func(string) string, stderr io.Writer) (options, error) {
	var opts options
	flags := newFlags("tenured", usage, stderr)
	node := opts.flags(flags, getenv)
	if err := flags.Parse(args); err != nil {
		return opts, fmt.Errorf("%w: see tenured --help, and remove what it does not list (Helm: agent.extraArgs)", err)
	}
	if flags.NArg() > 0 {
		return opts, fmt.Errorf("unexpected argument %q: see tenured --help", flags.Arg(0))
	}
	if opts.version {
		return opts, nil
	}
	c := &opts.daemon
	if *node == "" {
		return opts, errors.New("no node name: set NODE_NAME or give --node")
	}
	if c.Profiles && c.Listen == "" {
		return opts, errors.New("--profiles without an address to serve them at: give --listen, or leave --profiles out")
	}
	if c.NeedDefault && !c.MultiNetwork {
		return opts, errors.New("--require-default-pod-network without --multi-network, which serves PodNetworks: give both, or neither")
	}
	if err := c.HistoryBounds.Validate(); err != nil {
		return opts, fmt.Errorf("--history-size or --history-age: %w", err)
	}
	c.Agent.Node = protocol.NodeName(*node)
	err := opts.identify()
	return opts, err
}

func newFlags(name, usage string, stderr io.Writer) *pflag.FlagSet {
	flags := pflag.NewFlagSet(name, pflag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { fmt.Fprint(stderr, usage, flags.FlagUsages()) }
	return flags
}

// flags has the agent's flags set opts, and returns where the node's name will be.
func (o *options) flags(flags *pflag.FlagSet, getenv func(string) string) (node *string) {
	a := agent.DefaultConfig("")
	o.daemon = daemon.Config{Agent: a, RegistrationNamespace: kube.DefaultRegistrationNamespace, Ready: ready.DefaultConfig()}
	c := &o.daemon
	node = flags.String("node", getenv("NODE_NAME"), "name of the node to serve (default: $NODE_NAME)")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "path of a kubeconfig; empty: the service account of this pod")
	flags.StringVar(&c.Store, "store", "/var/lib/tenure/agent/store.db", "path of the store: which addresses this node has promised")
	flags.StringVar(&c.Socket, "socket", poolspec.DefaultSocket, "path of the socket for the CNI plugin; its lock lies beside it")
	flags.StringVar(&c.Agent.JournalDir, "journal", a.JournalDir, "directory where the CNI plugin leaves DELs that found no agent")
	flags.StringSliceVar(&c.NetnsDirs, "netns-dirs", daemon.DefaultNetnsDirs(), "directories where runtimes keep network namespaces")
	flags.StringSliceVar(&c.ResultDirs, "cni-results", cniresults.DefaultDirs(), "directories where the CNI library keeps results: a lost store is read back from there")
	flags.StringVar(&c.Listen, "listen", "127.0.0.1:9471", "address for /healthz, /readyz and /metrics; empty: none")
	flags.BoolVar(&c.Profiles, "profiles", false, "serve profiles of this process at /debug/pprof/ too, to whoever reaches that address: see docs/operations/performance.md")
	flags.DurationVar(&c.Agent.Fence, "fence", a.Fence, "F: without an accepted heartbeat for so long nothing new is given out; at most 1h; 0: never by time. The same on all nodes")
	flags.DurationVar(&c.Agent.Wait, "wait", a.Wait, "how long an ADD waits for a claim, a pool or a block before it answers \"try again later\"")
	flags.DurationVar(&c.Agent.Idle, "idle", a.Idle, "how long a lease that nothing uses is kept")
	flags.StringVar(&c.Agent.Machine, "machine-id", "", "what tells this machine from others (default: the firmware's UUID, else /etc/machine-id)")
	flags.StringVar(&o.bootFile, "boot-id-file", daemon.DefaultBootFile, "file that says in which boot of the machine this is, where the kernel's own is another machine's, as in a node that is a container")
	flags.StringVar(&c.DRASocket, "dra-socket", getenv("DRA_SOCKET"), "path of a socket on which DRANET, the driver of network devices, asks for addresses of ResourceClaims; empty: none. See docs/howto/resource-claims.md (default: $DRA_SOCKET)")
	historyFlags(flags, &c.HistoryBounds)
	attachFlags(flags, c)
	flags.BoolVar(&o.debug, "debug", false, "log more")
	flags.BoolVar(&o.version, "version", false, "print the version, and do nothing")
	hidden(flags, c)
	return node
}

// hidden adds the flags that are for tests, and those of earlier versions.
func hidden(flags *pflag.FlagSet, c *daemon.Config) {
	a := c.Agent
	flags.StringVar(&c.RegistrationNamespace, "registration-namespace", c.RegistrationNamespace, "namespace of the nodes' registrations")
	flags.StringVar(&c.RegistrationNamespace, "seat-namespace", c.RegistrationNamespace, "deprecated: use --registration-namespace")
	flags.DurationVar(&c.Agent.KeepRequest, "keep-request", a.KeepRequest, "how long a request to the cluster that nobody tries any more is kept")
	flags.DurationVar(&c.Agent.PublishEvery, "publish-every", a.PublishEvery, "how often at most a lease's status is written")
	flags.DurationVar(&c.Agent.SweepEvery, "sweep-every", a.SweepEvery, "how far apart the two looks are that make an attachment garbage")
	for _, name := range []string{"registration-namespace", "keep-request", "publish-every", "sweep-every"} {
		_ = flags.MarkHidden(name) // it is there
	}
	_ = flags.MarkDeprecated("seat-namespace", "use --registration-namespace") // likewise
}

// attachFlags adds the flags of what concerns the meta-plugin alone.
func attachFlags(flags *pflag.FlagSet, c *daemon.Config) {
	flags.StringVar(&c.Reports, "reports", "", "directory for what the meta-plugin has reported: what the API server does not know yet, and what pods show (default: reports beside the store)")
	flags.StringVar(&c.AttachState, "attach-state", plan.DefaultStateDir, "tenure-attach's stateDir: what it could not report while the agent was away is taken from there")
	flags.StringVar(&c.PodResources, "pod-resources", devices.DefaultSocket, "path of the kubelet's pod-resources socket, which tells the devices of a pod; where there is none, pods have no devices")
	flags.BoolVar(&c.MultiNetwork, "multi-network", false, "attach pods to the PodNetworks that they list: see docs/howto/pod-networks.md. The same on all nodes, and on the controller")
	flags.BoolVar(&c.VIFs, "vifs", false, "attach pods to networks whose interfaces the control plane decides: see docs/howto/vifs.md. The same on all nodes, and on the controller")
	flags.BoolVar(&c.NeedDefault, "require-default-pod-network", false, "with --multi-network: while the cluster has no PodNetwork default, have STATUS fail, so that the node is NotReady")
	flags.StringVar(&c.Ready.Source, "cni-conf", "", "path of the CNI configuration of tenure-attach that is installed while the default network is ready; empty: none is")
	flags.StringVar(&c.Ready.Dir, "cni-conf-dir", c.Ready.Dir, "the runtime's directory of CNI configurations, where it is installed")
	flags.StringVar(&c.Ready.Name, "cni-conf-name", c.Ready.Name, "its name there: the runtime takes the first one in alphabetical order")
	flags.BoolVar(&c.Ready.AtOnce, "cni-conf-at-once", false, "install it whether the default network is ready or not: tenure-attach then waits for its readinessindicatorfile")
}

// identify fills in the machine and its boot.
func (o *options) identify() (err error) {
	c := &o.daemon.Agent
	if c.Machine == "" {
		if c.Machine, err = daemon.MachineID(); err != nil {
			return err
		}
	}
	c.Boot, err = daemon.BootID(o.bootFile)
	return err
}
