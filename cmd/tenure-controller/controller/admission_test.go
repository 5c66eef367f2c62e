package controller

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/ipam/access"
)

// unread is a cache that answers every Get with an error.
type unread struct {
	client.Reader
	err error
}

func (c unread) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return c.err
}

// TestAdmissionWithoutAPool: nobody has been admitted to a pool that is not there, since it
// may have a rule when it is made.
func TestAdmissionWithoutAPool(t *testing.T) {
	gone := apierrors.NewNotFound(schema.GroupResource{Resource: "ippools"}, "lan")
	err := admission{cache: unread{err: gone}}.Admit(t.Context(), "ns", "lan")
	if _, missing := errors.AsType[*access.MissingError](err); !missing || err.Error() != "pool lan does not exist" {
		t.Errorf("no pool: %v; want that it does not exist", err)
	}
	err = admission{cache: unread{err: errors.New("away")}}.Admit(t.Context(), "ns", "lan")
	if _, unknown := errors.AsType[*access.UnknownError](err); !unknown {
		t.Errorf("a pool that cannot be read: %v; want that it is not known", err)
	}
}
