package npwg

import (
	"fmt"
	"strings"
)

// Tenure's annotations of definitions which say whose pods may select one.
const (
	// AnnotationNamespaces lists, separated by commas, the namespaces besides its
	// own whose pods may use a definition; * stands for all.
	AnnotationNamespaces = "tenure.dev/namespaces"
	// AnnotationSelector is a label selector of such namespaces.
	AnnotationSelector = "tenure.dev/namespace-selector"
)

// WhyForbidden says why pods of another namespace, which has these labels, may not use a definition
// with these annotations; empty: they may. says is false where the annotations say nothing of it.
func WhyForbidden(annotations map[string]string, namespace string, labels map[string]string) (why string, says bool) {
	list, listed := annotations[AnnotationNamespaces]
	selector, selected := annotations[AnnotationSelector]
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); name == namespace || name == "*" {
			return "", true
		}
	}
	if selected {
		ok, err := matches(selector, labels)
		if err != nil {
			return fmt.Sprintf("its annotation %s cannot be read: %v", AnnotationSelector, err), true
		}
		if ok {
			return "", true
		}
	}
	return fmt.Sprintf("its own annotation does not let pods of namespace %s use it", namespace), listed || selected
}
