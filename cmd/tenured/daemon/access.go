package daemon

import (
	"context"

	"github.com/tenure-ipam/tenure/attach/node/resolve"
	"github.com/tenure-ipam/tenure/ipam/access"
)

// namespaceFacts is what is known of namespaces as the agent wants it: labels from the
// watches of those that pods of this node come from, and the authorizer's answers.
type namespaceFacts struct {
	resolver *resolve.Resolver
	*access.Reviews
}

// Labels implements access.Facts.
func (f namespaceFacts) Labels(ctx context.Context, namespace string) (map[string]string, error) {
	return f.resolver.Labels(ctx, namespace)
}
