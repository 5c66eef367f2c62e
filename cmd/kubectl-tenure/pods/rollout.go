package pods

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/attach/plan"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// deploymentIn returns the Deployment that an object of a manifest is; nil: it is none.
func deploymentIn(o *unstructured.Unstructured) (*appsv1.Deployment, error) {
	if o.GetKind() != "Deployment" {
		return nil, nil //nolint:nilnil // it is none, and nothing is wrong
	}
	d := &appsv1.Deployment{}
	return d, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, d)
}

// deploymentOf reads the Deployment of a pod that a ReplicaSet controls. It is nil if there is
// none, or if the user may not read it.
func deploymentOf(ctx context.Context, s *session.Session, pod protocol.PodRef) (*appsv1.Deployment, error) {
	i := strings.LastIndexByte(pod.Owner.Name, '-')
	if pod.Owner.Kind != "ReplicaSet" || i < 0 {
		return nil, nil //nolint:nilnil // it has none, and nothing is wrong
	}
	var d appsv1.Deployment
	err := s.Client.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: pod.Owner.Name[:i]}, &d)
	if apierrors.IsNotFound(err) || session.Forbidden(err) {
		return nil, nil //nolint:nilnil // likewise
	}
	return &d, err
}

// standoffs says what becomes of the pods of a Deployment where a plan of one of them has addresses
// that one pod at a time can have.
func standoffs(d *appsv1.Deployment, steps []plan.Step) (all []string) {
	replicas := 1
	if d.Spec.Replicas != nil {
		replicas = int(*d.Spec.Replicas)
	}
	for _, s := range steps {
		what := "claim " + s.Claim
		if len(s.Requested.IPs) > 0 && s.Claim == "" {
			what = "addresses"
		} else if s.Claim == "" {
			continue
		}
		const instead = "; or have a StatefulSet, whose pods keep their addresses by claims of their own"
		switch {
		case replicas > 1:
			all = append(all, fmt.Sprintf("network %s: Deployment %s has %d replicas, which all ask for the same %s, and one pod at a time can have it: give it one replica and strategy: {type: Recreate}%s",
				s.Name, d.Name, replicas, what, instead))
		case replicas == 1 && keepsOld(d.Spec.Strategy):
			all = append(all, fmt.Sprintf("network %s: Deployment %s ends its old pod when the new one is Ready, and the new one waits for the old one's %s: a rolling update never ends. Give it strategy: {type: Recreate}%s",
				s.Name, d.Name, what, instead))
		}
	}
	return all
}

// keepsOld reports whether an update of one replica has the old pod stay until the new one is
// Ready.
func keepsOld(s appsv1.DeploymentStrategy) bool {
	if s.Type == appsv1.RecreateDeploymentStrategyType {
		return false
	}
	surge, unavailable := new(intstr.FromString("25%")), new(intstr.FromString("25%"))
	if r := s.RollingUpdate; r != nil && r.MaxSurge != nil {
		surge = r.MaxSurge
	}
	if r := s.RollingUpdate; r != nil && r.MaxUnavailable != nil {
		unavailable = r.MaxUnavailable
	}
	more, err1 := intstr.GetScaledValueFromIntOrPercent(surge, 1, true)
	fewer, err2 := intstr.GetScaledValueFromIntOrPercent(unavailable, 1, false)
	return err1 == nil && err2 == nil && more > 0 && fewer == 0
}
