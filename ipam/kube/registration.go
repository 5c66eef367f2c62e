package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	coordination "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Annotations of a registration. Its holderIdentity is the store's ID, its
// leaseTransitions the term, its leaseDurationSeconds F, its renewTime the last
// heartbeat by the node's wall clock.
const (
	annotationNodeUID   = "tenure.dev/node-uid"
	annotationMachine   = "tenure.dev/machine"
	annotationBoot      = "tenure.dev/boot"
	annotationWrites    = "tenure.dev/turn"
	annotationRecalls   = "tenure.dev/recalls"
	annotationFormer    = "tenure.dev/former"
	annotationRestore   = "tenure.dev/restored"
	annotationQuery     = "tenure.dev/look"
	annotationReport    = "tenure.dev/report"
	annotationLabels    = "tenure.dev/labels"
	annotationStrangers = "tenure.dev/strangers"
)

// ReadRegistration reads a node's registration live.
func (a *API) ReadRegistration(ctx context.Context, node protocol.NodeName) (protocol.Registration, protocol.Outcome, error) {
	var obj coordination.Lease
	out, err := a.get(ctx, a.RegistrationKey(node), &obj)
	if out != protocol.Done {
		return protocol.Registration{}, out, err
	}
	return toOutcome(RegistrationOf(&obj))
}

// Registrations reads all registrations live, one that is garbled as far as it can be read: the
// agent there counts all the same.
func (a *API) Registrations(ctx context.Context) ([]protocol.Registration, error) {
	var list coordination.LeaseList
	if err := a.list(ctx, &list, client.InNamespace(a.RegistrationNamespace)); err != nil {
		return nil, fmt.Errorf("list registrations: %w", err)
	}
	var regs []protocol.Registration
	for i := range list.Items {
		if IsRegistration(&list.Items[i]) {
			s, _ := RegistrationOf(&list.Items[i]) // its watch says so
			regs = append(regs, s)
		}
	}
	return regs, nil
}

// CreateRegistration creates a node's registration.
func (a *API) CreateRegistration(ctx context.Context, s protocol.Registration) (protocol.Registration, protocol.Outcome, error) {
	obj := ToRegistration(a.RegistrationNamespace, s)
	maps.Copy(obj.Annotations, a.unserved())
	out, err := a.create(ctx, obj)
	if out != protocol.Done {
		return protocol.Registration{}, out, err
	}
	return toOutcome(RegistrationOf(obj))
}

// UpdateRegistration writes a registration by compare-and-swap on its UID and Revision.
func (a *API) UpdateRegistration(ctx context.Context, s protocol.Registration) (protocol.Registration, protocol.Outcome, error) {
	obj := &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Name: string(s.Node), Namespace: a.RegistrationNamespace}}
	out, err := a.swap(ctx, obj, s.Meta, map[string]any{
		"metadata": map[string]any{"annotations": regAnnotationsPatch(regAnnotations(s), a.unserved())},
		"spec":     regPatch(s),
	})
	if out != protocol.Done {
		return protocol.Registration{}, out, err
	}
	return toOutcome(RegistrationOf(obj))
}

// annotateRegistration sets one annotation of the registration of exactly this name and UID,
// whatever its revision: of one on which no right depends.
func (a *API) annotateRegistration(ctx context.Context, m protocol.Meta, annotation, value string) (*coordination.Lease, protocol.Outcome, error) {
	obj := &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Name: m.Name, Namespace: a.RegistrationNamespace}}
	out, err := a.swap(ctx, obj, protocol.Meta{Name: m.Name, UID: m.UID}, map[string]any{
		"metadata": map[string]any{"annotations": map[string]string{annotation: value}},
	})
	return obj, out, err
}

// TellLabels writes labels of a node into its registration, and nothing else of it: the agent reads
// them there.
func (a *API) TellLabels(ctx context.Context, m protocol.Meta, labels string) (protocol.Outcome, error) {
	_, out, err := a.annotateRegistration(ctx, m, annotationLabels, labels)
	return out, err
}

// DeleteRegistration deletes the registration of exactly this name, UID and revision.
func (a *API) DeleteRegistration(ctx context.Context, m protocol.Meta) (protocol.Outcome, error) {
	return a.remove(ctx, &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Name: m.Name, Namespace: a.RegistrationNamespace}}, m)
}

// IsRegistration tells a registration from another lease of its namespace, such as the one by which
// a controller leads: by any of a registration's annotations, so that none hides it by its
// absence.
func IsRegistration(o *coordination.Lease) bool {
	for _, name := range []string{
		annotationNodeUID, annotationMachine, annotationBoot, annotationWrites, annotationRecalls, annotationFormer, annotationRestore,
	} {
		if _, ok := o.Annotations[name]; ok {
			return true
		}
	}
	return false
}

// RegistrationKey returns where a node's registration is.
func (a *API) RegistrationKey(node protocol.NodeName) client.ObjectKey {
	return client.ObjectKey{Namespace: a.RegistrationNamespace, Name: string(node)}
}

// ToRegistration returns a node's registration as its agent writes it.
func ToRegistration(namespace string, s protocol.Registration) *coordination.Lease {
	return &coordination.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: string(s.Node), Namespace: namespace, Annotations: regAnnotations(s)},
		Spec:       regSpec(s),
	}
}

func regAnnotations(s protocol.Registration) map[string]string {
	all := map[string]string{
		annotationNodeUID: string(s.NodeUID), annotationMachine: s.Machine, annotationBoot: s.Boot,
		annotationWrites: strconv.FormatInt(s.Writes, 10), annotationRestore: s.Restored,
		annotationRecalls: listText(s.Recalls), annotationFormer: listText(s.Former),
		annotationQuery: s.Query, annotationReport: s.Report,
	}
	// Policies of the version before admit no such annotation.
	if text := listText(s.Strangers); text != "" {
		all[annotationStrangers] = text
	}
	return all
}

// unserved returns the annotation that says why the node's pods are not attached to PodNetworks.
func (a *API) unserved() map[string]string {
	if a.Unserved == nil {
		return nil
	}
	return map[string]string{podnetwork.AnnotationUnserved: a.Unserved()}
}

// regAnnotationsPatch returns annotations for a merge patch, where what is absent stays as it is.
func regAnnotationsPatch(all ...map[string]string) map[string]any {
	patch := map[string]any{annotationStrangers: nil}
	for _, some := range all {
		for key, value := range some {
			patch[key] = value
		}
	}
	return patch
}

// listText returns list as JSON, and no text for an empty one.
func listText[T any](list []T) string {
	if len(list) == 0 {
		return ""
	}
	text, err := json.Marshal(list)
	if err != nil { // strings and numbers
		panic(fmt.Sprintf("encode a registration's annotation: %v", err))
	}
	return string(text)
}

func regSpec(s protocol.Registration) coordination.LeaseSpec {
	store, term, beat := string(s.Store), int32(s.Term), metav1.NewMicroTime(s.Beat)
	spec := coordination.LeaseSpec{HolderIdentity: &store, LeaseTransitions: &term, RenewTime: &beat}
	if f := int32(s.Fence / time.Second); f > 0 {
		spec.LeaseDurationSeconds = &f
	}
	return spec
}

// regPatch returns what regSpec returns, for a merge patch. There a field that is absent stays as
// it is, so that all are named.
func regPatch(s protocol.Registration) map[string]any {
	spec := regSpec(s)
	patch := map[string]any{
		"holderIdentity": spec.HolderIdentity, "leaseTransitions": spec.LeaseTransitions, "renewTime": spec.RenewTime, "leaseDurationSeconds": nil,
	}
	if spec.LeaseDurationSeconds != nil {
		patch["leaseDurationSeconds"] = *spec.LeaseDurationSeconds
	}
	return patch
}

// A RegistrationError is the error of a registration that is garbled: a part of it cannot be read.
// An agent does not serve under such a registration. A controller goes by what can be read: it is
// one node's to write, and must not keep what that node holds from the cluster.
type RegistrationError struct {
	// Registration is what can be read.
	Registration protocol.Registration
	Err          error
}

func (e *RegistrationError) Error() string {
	return fmt.Sprintf("read registration %s: %v: remove the annotation, and the node's agent writes it anew", e.Registration.Node, e.Err)
}

// Unwrap returns what is wrong.
func (e *RegistrationError) Unwrap() error { return e.Err }

// RegistrationOf reads a registration. Its error is a [*RegistrationError]. F is no longer than
// [protocol.MaxFence], which no agent exceeds, whatever the registration says.
func RegistrationOf(o *coordination.Lease) (protocol.Registration, error) {
	s := protocol.Registration{
		Meta: MetaOf(o), Node: protocol.NodeName(o.Name), NodeUID: protocol.UID(o.Annotations[annotationNodeUID]),
		Machine: o.Annotations[annotationMachine], Boot: o.Annotations[annotationBoot], Restored: o.Annotations[annotationRestore],
		Query: o.Annotations[annotationQuery], Report: o.Annotations[annotationReport], Labels: o.Annotations[annotationLabels],
	}
	if o.Spec.HolderIdentity != nil {
		s.Store = protocol.StoreID(*o.Spec.HolderIdentity)
	}
	if o.Spec.LeaseTransitions != nil {
		s.Term = int64(*o.Spec.LeaseTransitions)
	}
	if o.Spec.LeaseDurationSeconds != nil {
		s.Fence = min(time.Duration(*o.Spec.LeaseDurationSeconds)*time.Second, protocol.MaxFence)
	}
	if o.Spec.RenewTime != nil {
		s.Beat = o.Spec.RenewTime.Time
	}
	var bad [4]error
	s.Writes, bad[0] = writesOf(o)
	s.Recalls, bad[1] = listOf[protocol.Recall](o, annotationRecalls)
	s.Former, bad[2] = listOf[protocol.Former](o, annotationFormer)
	s.Strangers, bad[3] = listOf[protocol.Stranger](o, annotationStrangers)
	for i := range s.Former {
		s.Former[i].Fence = min(s.Former[i].Fence, protocol.MaxFence)
	}
	if err := errors.Join(bad[:]...); err != nil {
		return s, &RegistrationError{Registration: s, Err: err}
	}
	return s, nil
}

// writesOf reads a registration's write counter. Where there is none it is the revision, which has
// risen with each write: so the next is above all that an agent may have seen, which would take
// a lower one for an API server that has gone back.
func writesOf(o *coordination.Lease) (int64, error) {
	text, ok := o.Annotations[annotationWrites]
	writes, err := strconv.ParseInt(text, 10, 64)
	if err == nil {
		return writes, nil
	}
	writes, _ = strconv.ParseInt(o.ResourceVersion, 10, 64) // 0 for one that is no number
	if !ok {
		return writes, nil
	}
	return writes, fmt.Errorf("annotation %s: %w", annotationWrites, err)
}

// listOf reads a list that listText has written; it is empty where it cannot be read.
func listOf[T any](o *coordination.Lease, name string) (list []T, err error) {
	raw := o.Annotations[name]
	if raw == "" {
		return nil, nil
	}
	if err := json.Unmarshal([]byte(raw), &list); err != nil {
		return nil, fmt.Errorf("annotation %s: %w", name, err)
	}
	return list, nil
}
