package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/tenure-ipam/tenure/deploy/image"
)

// overlayDir is where the overlay lies that was rendered last, for people to look at, or
// to copy.
const overlayDir = "bin/install"

// overlay is what a person writes who installs Tenure by kustomize.
func (o options) overlay() string {
	components := ""
	if o.attach {
		components = "components: [../../deploy/attach]\n"
	}
	prefix := strings.TrimSuffix(o.registry, "/")
	return fmt.Sprintf(`# Made by make install and make manifest.
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../../deploy]
%[1]simages:
- {name: tenured, newName: %[2]s/tenured, newTag: %[3]q}
- {name: tenure-controller, newName: %[2]s/tenure-controller, newTag: %[3]q}
`, components, prefix, o.tag)
}

// render returns the manifests for these options, as YAML.
func (o options) render(ctx context.Context) ([]byte, error) {
	if o.registry == "" || o.tag == "" {
		return nil, errors.New("REGISTRY= and TAG= (-registry, -tag) must say what your images are called: REGISTRY/tenured:TAG, as make push has pushed them; on the cluster of make cluster, REGISTRY=tenure.dev")
	}
	for _, of := range image.Of {
		if err := image.CheckName(strings.TrimSuffix(o.registry, "/") + "/" + of.Name + ":" + o.tag); err != nil {
			return nil, fmt.Errorf("REGISTRY= or TAG= (-registry, -tag): %w", err)
		}
	}
	if _, err := os.Stat("deploy/kustomization.yaml"); err != nil {
		return nil, fmt.Errorf("run it in the top directory of the source: %w", err)
	}
	if err := os.MkdirAll(overlayDir, 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(overlayDir, "kustomization.yaml"), []byte(o.overlay()), 0o644); err != nil {
		return nil, err
	}
	return kubectl(ctx, nil, "kustomize", overlayDir)
}

// kubectl runs kubectl with input, and returns what it printed.
func kubectl(ctx context.Context, input []byte, args ...string) ([]byte, error) {
	var out, said bytes.Buffer
	cmd := exec.CommandContext(ctx, "kubectl", args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &out, &said
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(said.Bytes()))
	}
	return out.Bytes(), nil
}

// split returns, as YAML, the objects of a manifest that are meant, and the others.
func split(text []byte, meant func(*unstructured.Unstructured) bool) (these, others []byte, err error) {
	objects, err := parse(text)
	if err != nil {
		return nil, nil, err
	}
	for _, o := range objects {
		doc, err := o.MarshalJSON() // which is YAML too
		if err != nil {
			return nil, nil, err
		}
		if doc = append([]byte("---\n"), doc...); meant(o) {
			these = append(these, doc...)
		} else {
			others = append(others, doc...)
		}
	}
	return these, others, nil
}

// parse reads the objects of YAML documents.
func parse(text []byte) (objects []*unstructured.Unstructured, err error) {
	for docs := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		o := &unstructured.Unstructured{}
		if err := docs.Decode(&o.Object); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, err
		}
		objects = append(objects, o)
	}
}
