package pods

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/attach/node/resolve"
	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
	"github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// source is where the facts of an explanation come from: a manifest, and the cluster
// for what is not in it. It implements [resolve.Source].
type source struct {
	*session.Session
	namespace, name string // the pod's
	pod             *resolve.Pod
	// deployment makes the pod, if one does and it is known.
	deployment *appsv1.Deployment
	// definitions are those of the manifest.
	definitions map[facts.Ref]facts.Definition
}

// podNamespace returns the namespace of the pod: the manifest's, or the command's.
func (s *source) podNamespace() (string, error) {
	if s.pod != nil && s.pod.Namespace != "" {
		return s.pod.Namespace, nil
	}
	return s.Namespace()
}

// ref names the pod.
func (s *source) ref() facts.PodRef {
	if s.pod == nil {
		return facts.PodRef{Namespace: s.namespace, Name: s.name}
	}
	s.pod.Namespace = s.namespace
	return facts.PodRef{Namespace: s.namespace, Name: s.pod.Name}
}

// read takes the first pod, and all definitions, out of a manifest.
func (s *source) read(path string) error {
	text, err := s.open(path)
	if err != nil {
		return err
	}
	s.definitions = map[facts.Ref]facts.Definition{}
	for dec := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		var o unstructured.Unstructured
		switch err := dec.Decode(&o.Object); {
		case errors.Is(err, io.EOF) && s.pod == nil:
			return fmt.Errorf("%s: there is no pod in it, and nothing with a pod template", path)
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("%s: %w", path, err)
		}
		if err := s.takeAll(&o); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
}

// takeAll takes an object of a manifest, or all of a list, as kubectl prints several.
func (s *source) takeAll(o *unstructured.Unstructured) error {
	take := func(o *unstructured.Unstructured) error {
		if err := s.take(o); err != nil {
			return fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
		}
		return nil
	}
	if !o.IsList() {
		return take(o)
	}
	return o.EachListItem(func(item runtime.Object) error { return take(item.(*unstructured.Unstructured)) })
}

func (s *source) open(path string) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(s.Stdin)
	}
	return os.ReadFile(path)
}

// take takes an object of a manifest.
func (s *source) take(o *unstructured.Unstructured) error {
	if o.GetKind() == "NetworkAttachmentDefinition" {
		return s.takeDefinition(o)
	}
	if s.pod != nil {
		return nil
	}
	template, ok := podTemplate(o)
	if !ok {
		return nil
	}
	var meta metav1.ObjectMeta
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(template, &meta); err != nil {
		return err
	}
	name := meta.Name
	if name == "" {
		name = o.GetName() + o.GetGenerateName()
	}
	s.pod = &resolve.Pod{Namespace: o.GetNamespace(), Name: name, Annotations: meta.Annotations}
	var err error
	s.deployment, err = deploymentIn(o)
	return err
}

// podTemplate returns the metadata of the pod that o is, or makes.
func podTemplate(o *unstructured.Unstructured) (map[string]any, bool) {
	paths := [][]string{{"spec", "template"}, {"spec", "jobTemplate", "spec", "template"}}
	if o.GetKind() == "Pod" {
		paths = [][]string{{}}
	}
	for _, path := range paths {
		object, ok, err := unstructured.NestedMap(o.Object, path...)
		if len(path) == 0 {
			object, ok, err = o.Object, true, nil
		}
		if ok && err == nil {
			meta, _, err := unstructured.NestedMap(object, "metadata")
			return meta, err == nil
		}
	}
	return nil, false
}

func (s *source) takeDefinition(o *unstructured.Unstructured) error {
	var d nad.NetworkAttachmentDefinition
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &d); err != nil {
		return err
	}
	if d.Namespace == "" {
		var err error
		if d.Namespace, err = s.Namespace(); err != nil {
			return err
		}
	}
	ref := facts.Ref{Namespace: d.Namespace, Name: d.Name}
	s.definitions[ref] = resolve.DefinitionOf(ref, d.Annotations, d.Spec.Config)
	return nil
}

// Pod implements [resolve.Source].
func (s *source) Pod(ctx context.Context, ref facts.PodRef) (resolve.Pod, error) {
	if s.pod != nil {
		return *s.pod, nil
	}
	if err := s.Connect(); err != nil {
		return resolve.Pod{}, err
	}
	o, out, err := s.API.ReadPodMetadata(ctx, ref.Namespace, ref.Name)
	if out != protocol.Done {
		return resolve.Pod{}, fmt.Errorf("read pod %s/%s: %w", ref.Namespace, ref.Name, err)
	}
	if s.deployment, err = deploymentOf(ctx, s.Session, kube.PodRefOf(o)); err != nil {
		return resolve.Pod{}, fmt.Errorf("read the Deployment of pod %s/%s: %w", ref.Namespace, ref.Name, err)
	}
	return resolve.Pod{
		Namespace: o.Namespace, Name: o.Name, UID: protocol.UID(o.UID), MirrorOf: kube.MirrorOf(o), Annotations: o.Annotations,
	}, nil
}

// Definition implements [resolve.Source].
func (s *source) Definition(ctx context.Context, ref facts.Ref, _ bool) (facts.Definition, error) {
	if d, ok := s.definitions[ref]; ok {
		return d, nil
	}
	if err := s.Connect(); err != nil {
		return facts.Definition{}, err
	}
	o, out, err := s.API.ReadDefinition(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name})
	switch {
	case out == protocol.NotFound:
		return resolve.Missing(ref), nil
	case out != protocol.Done:
		return facts.Definition{}, fmt.Errorf("read network attachment definition %s: %w", ref, err)
	}
	return resolve.DefinitionOf(ref, o.Annotations, o.Spec.Config), nil
}

// Labels implements [resolve.Source].
func (s *source) Labels(ctx context.Context, namespace string) (map[string]string, error) {
	if err := s.Connect(); err != nil {
		return nil, err
	}
	o, out, err := s.API.ReadNamespaceMetadata(ctx, namespace)
	if out != protocol.Done {
		return nil, fmt.Errorf("read namespace %s: %w", namespace, err)
	}
	return o.Labels, nil
}

// DevicesOf implements [resolve.Source]: devices are the kubelet's to give.
func (s *source) DevicesOf(context.Context, string, string) (map[string][]string, error) {
	return map[string][]string{}, nil
}
