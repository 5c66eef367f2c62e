package poolspec

import (
	"fmt"
	"slices"
	"strings"
)

// byNamespaceKey is the key of an element of "pools" that has its pool by a label of the pod's
// namespace.
const byNamespaceKey = "byNamespace"

// ByNamespace reports whether [OfNamespace] has to find the pool of one of sources.
func ByNamespace(sources []Source) bool {
	return slices.ContainsFunc(sources, func(s Source) bool { return s.Pool == "" && s.ByNamespace != "" })
}

// A NamespaceError says why the labels of a namespace do not name its pools.
type NamespaceError struct {
	// Namespace is empty where nobody has said which it is.
	Namespace, Label string
	// Why reads on from the label.
	Why string
}

func (e *NamespaceError) Error() string {
	if e.Namespace == "" {
		return fmt.Sprintf("the pool is named by label %s of the pod's namespace, and nobody has said which namespace that is: a runtime tells it by K8S_POD_NAMESPACE in CNI_ARGS", e.Label)
	}
	return fmt.Sprintf("label %s of namespace %s is to name its pool, and %s", e.Label, e.Namespace, e.Why)
}

// OfNamespace returns sources for a pod or a claim of a namespace with these labels: each that has
// its pool by a label with the pool that the label names. Its error is a [*NamespaceError].
func OfNamespace(sources []Source, namespace string, labels map[string]string) ([]Source, error) {
	found := slices.Clone(sources)
	for i := range found {
		s := &found[i]
		if s.Pool != "" || s.ByNamespace == "" {
			continue
		}
		e := &NamespaceError{Namespace: namespace, Label: s.ByNamespace}
		name, ok := labels[s.ByNamespace]
		switch {
		case namespace == "":
			return nil, e
		case !ok:
			e.Why = fmt.Sprintf("is not there: kubectl label namespace %s %s=POOL", namespace, s.ByNamespace)
			return nil, e
		case !isPoolName(name):
			e.Why = fmt.Sprintf("%q cannot be a pool's name: kubectl label --overwrite namespace %s %s=POOL", name, namespace, s.ByNamespace)
			return nil, e
		}
		if slices.ContainsFunc(found, func(o Source) bool { return o.Pool == name }) {
			e.Why = fmt.Sprintf("names pool %s, of which the network gives an address already: name each pool once", name)
			return nil, e
		}
		s.Pool = name
	}
	return found, nil
}

// InPools returns sources with pools as those of the sources that have theirs by a label, in order.
// ok is false where there are not as many.
func InPools(sources []Source, pools []string) (found []Source, ok bool) {
	pools = slices.DeleteFunc(slices.Clone(pools), func(name string) bool {
		return slices.ContainsFunc(sources, func(s Source) bool { return s.Pool == name })
	})
	found = slices.Clone(sources)
	for i := range found {
		if found[i].Pool != "" || found[i].ByNamespace == "" {
			continue
		}
		if len(pools) == 0 {
			return nil, false
		}
		found[i].Pool, pools = pools[0], pools[1:]
	}
	return found, len(pools) == 0
}

// isLabelKey reports whether s can be the key of a label: a name, or prefix/name.
func isLabelKey(s string) bool {
	prefix, name, prefixed := strings.Cut(s, "/")
	if !prefixed {
		prefix, name = "", s
	}
	if prefixed && (len(prefix) > 253 || slices.ContainsFunc(strings.Split(prefix, "."), func(part string) bool { return !isPoolName(part) })) {
		return false
	}
	ends := func(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' }
	if name == "" || len(name) > 63 || !ends(name[0]) || !ends(name[len(name)-1]) {
		return false
	}
	for i := range len(name) {
		if c := name[i]; !ends(c) && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return true
}
