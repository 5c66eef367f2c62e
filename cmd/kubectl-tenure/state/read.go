// Package state reads what several verbs of kubectl tenure want to know of a cluster: its
// registrations and networks, who uses an address, and what a pod, a node or a pool says of
// itself. What cannot be read of a list is left out and said.
package state

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/audit"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
)

// Unread collects the objects that cannot be read, each once: a list that is begun anew
// shows some again.
type Unread struct {
	client client.Client
	All    []audit.Unreadable
	told   map[string]bool // by [audit.Unreadable.Object]
}

// NewUnread returns one that has not been told of any object.
func NewUnread(c client.Client) *Unread { return &Unread{client: c, told: map[string]bool{}} }

// Of returns a [Reader] of the objects of a kind.
func (u *Unread) Of(kind string) Reader {
	return Reader{u.client, func(o metav1.Object, why error) {
		name := o.GetName()
		if o.GetNamespace() != "" {
			name = o.GetNamespace() + "/" + name
		}
		bad := audit.Unreadable{Object: kind + " " + name, Why: why.Error()}
		if !u.told[bad.Object] {
			u.told[bad.Object] = true
			u.All = append(u.All, bad)
		}
	}}
}

// A Reader is where objects are read from, and who is told of those that say what nobody
// understands.
type Reader struct {
	client client.Client
	not    func(metav1.Object, error)
}

// Read lists in pages, and keeps of each object what of says. What that cannot read
// is left out, and r is told.
func Read[T, K any, PL interface {
	*L
	client.ObjectList
}, L any, PT interface {
	*T
	metav1.Object
}](ctx context.Context, r Reader, page PL, items func(PL) []T, of func(PT) (K, error), opts ...client.ListOption) ([]K, error) {
	return session.ListAll(ctx, r.client, page, func(p PL) (kept []K) {
		for _, o := range items(p) {
			if k, err := of(&o); err != nil {
				r.not(PT(&o), err)
			} else {
				kept = append(kept, k)
			}
		}
		return kept
	}, opts...)
}
