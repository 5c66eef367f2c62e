package state

import (
	"context"
	"fmt"
	"strings"
	"time"

	coordination "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Registration reads a node's registration live, nil if there is none, and when it was last
// renewed. Of one that is garbled it returns what can be read, as the controller does.
func Registration(ctx context.Context, s *session.Session, name protocol.NodeName) (*protocol.Registration, time.Time, error) {
	var o coordination.Lease
	switch err := s.Client.Get(ctx, s.API.RegistrationKey(name), &o); {
	case apierrors.IsNotFound(err):
		return nil, time.Time{}, nil
	case err != nil:
		return nil, time.Time{}, fmt.Errorf("read the registration of node %s: %w", name, err)
	}
	reg, _ := kube.RegistrationOf(&o)
	return &reg, lastBeat(&o, s.Now()), nil
}

// regsIn are the registrations of a list.
func regsIn(l *coordination.LeaseList) (regs []coordination.Lease) {
	for i := range l.Items {
		if kube.IsRegistration(&l.Items[i]) {
			regs = append(regs, l.Items[i])
		}
	}
	return regs
}

// Registrations returns the registrations by their nodes: of one that is garbled what can be read,
// and from is told. The Beat of each is the one by [lastBeat].
func Registrations(ctx context.Context, s *session.Session, from Reader) (map[protocol.NodeName]protocol.Registration, error) {
	all, err := Read(ctx, from, &coordination.LeaseList{}, regsIn, func(o *coordination.Lease) (protocol.Registration, error) {
		reg, err := registrationOf(o, s.Now())
		if err != nil {
			from.not(o, err)
		}
		return reg, nil
	}, client.InNamespace(s.API.RegistrationNamespace))
	regs := make(map[protocol.NodeName]protocol.Registration, len(all))
	for _, reg := range all {
		regs[reg.Node] = reg
	}
	return regs, err
}

// registrationOf reads a registration, as far as it can be read. The Beat is the one by [lastBeat].
func registrationOf(o *coordination.Lease, now time.Time) (protocol.Registration, error) {
	reg, err := kube.RegistrationOf(o)
	reg.Beat = lastBeat(o, now)
	return reg, err //nolint:wrapcheck // says what it is about
}

// clockRoom is how far two clocks that are set right may be apart.
const clockRoom = time.Minute

// lastBeat returns when a registration was last renewed. The agent says it by its node's clock,
// and the API server notes it by its own: the later one counts. If the agent's time lies in the
// future, that node's clock is wrong, and the API server's note counts if there is one. now is
// the API server's time.
func lastBeat(o *coordination.Lease, now time.Time) time.Time {
	var noted, said time.Time
	for _, m := range o.ManagedFields {
		if m.Time != nil && m.Time.After(noted) && m.FieldsV1 != nil && strings.Contains(m.FieldsV1.String(), `"f:renewTime"`) {
			noted = m.Time.Time
		}
	}
	if o.Spec.RenewTime != nil {
		said = o.Spec.RenewTime.Time
	}
	if said.After(noted) && (noted.IsZero() || !said.After(now.Add(clockRoom))) {
		return said
	}
	return noted
}
