// Package bundle has the verb bundle: it writes one file of what somebody needs who is to find out
// what is wrong with Tenure in a cluster that is not theirs. What may be a secret is left out.
package bundle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/screen"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
)

// options are the flags.
type options struct {
	file  string
	since time.Duration
	limit int64 // of bytes of each log
	nodes []string
}

const help = `Writes one file, tenure-bundle-TIME.tar.gz, for whoever is to find out what is wrong: Tenure's
objects with their conditions, network definitions, claims, pods that select networks, Events
about these, heartbeats, the logs and metrics of agents and controllers, what the agents' checks
of their stores have found, what check finds, and which versions run.

Left out are values that look like secrets, environments, annotations of others, and of pods all
but their name, node, phase, conditions and networks. Names and addresses of your cluster are in
it: look at it before you give it away. README in it says more.

What cannot be had is left out too: it is said at the end, with the right that is missing, and in
errors.txt. The exit code is 0 if there is a bundle, and 1 if there is none: of a cluster of which
nothing could be read there is none, nor after an interruption.

With --namespace it has what there is in that namespace alone, for who may not read the cluster.`

// New returns the verb bundle; version is that of this program.
func New(s *session.Session, version string) *cobra.Command {
	o := options{since: time.Hour, limit: 4 << 20}
	c := &cobra.Command{
		Use: "bundle [-f FILE]", Short: "write what is needed to find a fault into one file", Long: help,
		Args: session.None, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case o.since <= 0:
				return session.Usagef("--since is %v, must be positive", o.since)
			case o.limit <= 0:
				return session.Usagef("--limit-bytes is %d, must be positive", o.limit)
			case o.file == "-" && s.Screen().Terminal:
				return session.Usagef("bundle: it is no text: write it to a file (-f FILE), or send it to another program")
			case len(o.nodes) > 0 && s.Overrides.Context.Namespace != "":
				return session.Usagef("--node and --namespace do not go together: agents are of no namespace")
			}
			return write(c.Context(), s, o, version)
		},
	}
	c.Flags().StringVarP(&o.file, "file", "f", "", "the file, which must not be there yet; -: standard output (default: tenure-bundle-TIME.tar.gz)")
	c.Flags().DurationVar(&o.since, "since", o.since, "how old the logs' lines may be")
	c.Flags().Int64Var(&o.limit, "limit-bytes", o.limit, "how much of each log: its last bytes")
	c.Flags().StringSliceVar(&o.nodes, "node", nil, "have logs and metrics of the agents of these nodes alone (default: of all)")
	s.CompleteFlag(c, "node", s.NodeNames)
	return c
}

// A bundle is one that is being made.
type bundle struct {
	*session.Session
	options
	version   string
	namespace string // "": the whole cluster
	out       *archive
	redact    *redactor
	pods      corev1client.CoreV1Interface
	discover  discovery.DiscoveryInterface
	parts     parts
	stores    stores
}

func write(ctx context.Context, s *session.Session, o options, version string) error {
	name := "tenure-bundle-" + time.Now().UTC().Format("20060102T150405Z")
	b := &bundle{Session: s, options: o, version: version, namespace: s.Overrides.Context.Namespace, redact: newRedactor()}
	if err := b.connect(); err != nil {
		return err
	}
	if o.file == "-" {
		b.out = newArchive(s.Stdout, name, time.Now())
		if err := b.collect(ctx); err != nil {
			return err
		}
		b.tell("-", screen.Of(s.Stderr))
		return nil
	}
	if o.file == "" {
		o.file = name + ".tar.gz"
	}
	f, err := createFile(o.file)
	if err != nil {
		return err
	}
	b.out = newArchive(f, name, time.Now())
	if err := b.collect(ctx); err != nil {
		f.discard()
		return err
	}
	if err := f.finish(); err != nil {
		return &writeError{err}
	}
	b.tell(o.file, s.Screen())
	return nil
}

// connect makes the clients. It makes no call.
func (b *bundle) connect() error {
	if err := b.Connect(); err != nil {
		return err
	}
	var err error
	if b.pods, err = corev1client.NewForConfig(b.Rest); err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	brief := rest.CopyConfig(b.Rest)
	brief.Timeout = within // the call for the version has no other end
	if b.discover, err = discovery.NewDiscoveryClientForConfig(brief); err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	return nil
}

// collect reads all and writes the archive to its end. It returns an error where nothing could be
// read, where it cannot be written, and where ctx ends.
func (b *bundle) collect(ctx context.Context) error {
	b.parts.bar = b.Stderr
	// What objects have of secrets is left out of all that is read after them: first what may have
	// most, then the other objects, then texts.
	ours, selecting := &programs{}, map[types.UID]bool{}
	if err := b.parts.run(ctx, slices.Concat(b.definitions(), b.workloads(), b.findPrograms(ours))); err != nil {
		return err
	}
	if err := b.parts.run(ctx, append(b.objects(), b.podsThatSelect(selecting))); err != nil {
		return err
	}
	if err := b.parts.run(ctx, slices.Concat(b.eventsAndNodes(ours, selecting), b.ofPrograms(ours), b.findings())); err != nil {
		return err
	}
	if !b.parts.any() {
		return b.nothing()
	}
	return errors.Join(b.addVersions(ours), b.addStores(), b.addErrors(), b.addReadme(), b.out.close())
}

// nothing says why there is no bundle.
func (b *bundle) nothing() error {
	first := b.parts.missing[0].err
	if !session.Forbidden(first) {
		return fmt.Errorf("nothing could be read, and no bundle was written: %w", first)
	}
	if b.namespace != "" {
		return fmt.Errorf("no bundle was written: in namespace %s you may read none of what a bundle has. It takes the role view there: %w", b.namespace, first)
	}
	return fmt.Errorf("no bundle was written: you may read nothing of the whole cluster. For a bundle of one namespace give --namespace; for one of the cluster ask its administrator: %w", first)
}

// tell says what was written, and what is missing in it.
func (b *bundle) tell(name string, to screen.Screen) {
	to.Line("%s: %s, %.1f MB unpacked%s.", name, screen.Number(b.out.files, "file", "files"), float64(b.out.bytes)/1e6, map[bool]string{true: ", of namespace " + b.namespace + " alone"}[b.namespace != ""])
	to.Line("It has names and addresses of your cluster: look at it before you give it away.")
	b.parts.tell(screen.Of(b.Stderr))
}

// within is how long one call may take.
const within = time.Minute
