package fleet

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var serial atomic.Int64

// Unique returns a name that no other test has.
func Unique(prefix string) string { return fmt.Sprintf("%s-%d", prefix, serial.Add(1)) }

// Create creates an object, and returns it.
func Create[O client.Object](t testing.TB, kc client.Client, o O) O {
	t.Helper()
	if err := kc.Create(t.Context(), o); err != nil {
		t.Fatalf("create %T %s: %v", o, o.GetName(), err)
	}
	return o
}

// Delete deletes an object at once: a pod gets no grace period.
func Delete(t testing.TB, kc client.Client, o client.Object) {
	t.Helper()
	if err := kc.Delete(t.Context(), o, client.GracePeriodSeconds(0)); err != nil {
		t.Fatalf("delete %T %s: %v", o, o.GetName(), err)
	}
}

// Patch changes an object by a merge patch.
func Patch(t testing.TB, kc client.Client, o client.Object, text string) {
	t.Helper()
	if err := kc.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(text))); err != nil {
		t.Fatalf("patch %T %s: %v", o, o.GetName(), err)
	}
}

// Edit reads an object and changes it, whoever else writes it.
func Edit(t testing.TB, kc client.Client, o client.Object, change func()) {
	t.Helper()
	if err := TryEdit(t, kc, o, change); err != nil {
		t.Fatalf("edit %T %s: %v", o, o.GetName(), err)
	}
}

// TryEdit is [Edit] with the API server's error.
func TryEdit(t testing.TB, kc client.Client, o client.Object, change func()) error {
	t.Helper()
	if err := kc.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		t.Fatal(err)
	}
	before := o.DeepCopyObject().(client.Object)
	change()
	return kc.Patch(t.Context(), o, client.MergeFrom(before))
}

// Gone waits until an object is deleted.
func Gone(t testing.TB, kc client.Client, o client.Object, within time.Duration) {
	t.Helper()
	Eventually(t, within, func() error {
		err := kc.Get(t.Context(), client.ObjectKeyFromObject(o), o)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("%T %s is still there, with finalizers %q: %w", o, o.GetName(), o.GetFinalizers(), err)
	})
}

// Condition returns an error unless conditions has one of this type, status and
// reason, whose message contains words.
func Condition(conditions []metav1.Condition, kind string, status metav1.ConditionStatus, reason string, words ...string) error {
	c := meta.FindStatusCondition(conditions, kind)
	if c == nil {
		return fmt.Errorf("no condition %s in %+v", kind, conditions)
	}
	if c.Status != status || c.Reason != reason {
		return fmt.Errorf("condition %s is %s, %s (%s); want %s, %s", kind, c.Status, c.Reason, c.Message, status, reason)
	}
	for _, w := range words {
		if !strings.Contains(c.Message, w) {
			return fmt.Errorf("condition %s says %q; want %q in it", kind, c.Message, w)
		}
	}
	return nil
}

// Event waits for an Event about an object that has this reason and these words, and returns it.
// An object without a UID is known by its name, and by its kind if it says that.
func Event(t testing.TB, kc client.Client, about client.Object, reason string, words ...string) (found corev1.Event) {
	t.Helper()
	kind := about.GetObjectKind().GroupVersionKind().Kind
	isAbout := func(o corev1.ObjectReference) bool {
		if about.GetUID() != "" {
			return o.UID == about.GetUID()
		}
		return o.Namespace == about.GetNamespace() && o.Name == about.GetName() && (kind == "" || o.Kind == kind)
	}
	Eventually(t, 20*time.Second, func() error {
		var list corev1.EventList
		if err := kc.List(t.Context(), &list); err != nil {
			return err
		}
		var others []string
		for _, e := range list.Items {
			if !isAbout(e.InvolvedObject) {
				continue
			}
			lacks := func(word string) bool { return !strings.Contains(e.Message, word) }
			if e.Reason == reason && !slices.ContainsFunc(words, lacks) {
				found = e
				return nil
			}
			others = append(others, e.Type+" "+e.Reason+": "+e.Message)
		}
		return fmt.Errorf("%T %s has no Event %s with %q; it has %q", about, about.GetName(), reason, words, others)
	})
	return found
}
