package daemon

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/attach/node/resolve"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/node/agent"
	"github.com/tenure-ipam/tenure/ipam/node/dranet"
	"github.com/tenure-ipam/tenure/ipam/node/sched"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// AnnotationIPAMClaim names, on a ResourceClaim, the IPAMClaim of its namespace whose addresses its
// device is to have.
const AnnotationIPAMClaim = "tenure.dev/ipam-claim"

// devices returns what serves DRANET until its context ends, and nothing where it is not to be
// served. The socket is open when it returns.
func (d *Daemon) devices(ctx context.Context, c client.WithWatch, api *kube.API, a *agent.Agent, r *resolve.Resolver) (serve func(context.Context) error, err error) {
	if d.cfg.DRASocket == "" {
		return func(context.Context) error { return nil }, nil
	}
	if err := os.MkdirAll(filepath.Dir(d.cfg.DRASocket), 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of DRANET's socket: %w", err)
	}
	ln, err := listen(ctx, d.cfg.DRASocket)
	if err != nil {
		return nil, err
	}
	claims := kube.NewResourceClaims(c, api, d.cfg.Agent.Node)
	srv := dranet.Server{Devices: a, Cluster: deviceFacts{claims, r}, Sched: sched.Goroutines(d.cfg.Clock), Log: d.log}
	return func(ctx context.Context) error {
		g, ctx := errgroup.WithContext(ctx)
		g.Go(func() error { claims.Run(ctx); return nil })
		g.Go(func() error { return srv.Serve(ctx, ln) })
		return g.Wait()
	}, nil
}

// deviceFacts is the cluster as the server of devices wants it.
type deviceFacts struct {
	claims   *kube.ResourceClaims
	resolver *resolve.Resolver
}

// FindResourceClaim implements dranet.Cluster.
func (f deviceFacts) FindResourceClaim(ctx context.Context, uid protocol.UID) (agent.Device, error) {
	claim, pod, err := f.claims.Find(ctx, types.UID(uid))
	if err != nil {
		return agent.Device{}, err
	}
	return agent.Device{
		Claim: protocol.ResourceClaimRef{Namespace: claim.Namespace, Name: claim.Name, UID: uid},
		Pod:   kube.PodRefOf(pod), IPAMClaim: claim.Annotations[AnnotationIPAMClaim],
	}, nil
}

// Definition implements dranet.Cluster. Which configuration the runtime has for pods the agent does
// not know, so that a definition of another namespace has to say itself that it may be used.
func (f deviceFacts) Definition(ctx context.Context, namespace, name, forNamespace string) (config, why string, err error) {
	def, err := f.resolver.Definition(ctx, facts.Ref{Namespace: namespace, Name: name}, false)
	switch {
	case err != nil:
		return "", "", err
	case def.Missing != "":
		return "", "", dranet.ErrNoDefinition
	case def.Config != nil:
		config = *def.Config
	}
	if namespace == forNamespace {
		return config, "", nil
	}
	labels, err := f.resolver.Labels(ctx, forNamespace)
	if err != nil {
		return "", "", err
	}
	why, says := npwg.WhyForbidden(def.Annotations, forNamespace, labels)
	if !says {
		why = fmt.Sprintf("it is of namespace %s: use a definition of namespace %s, or have its owner name that in the annotation %s", namespace, forNamespace, npwg.AnnotationNamespaces)
	}
	return config, why, nil
}
