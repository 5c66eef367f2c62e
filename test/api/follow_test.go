package api_test

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	tenure "github.com/tenure-ipam/tenure/ipam/kube"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// TestFollowSubLeaseSince: who follows a sub-lease from the revision that was seen hears
// of what came after alone; who names one that the API server does not know any more hears
// of it as it is.
func TestFollowSubLeaseSince(t *testing.T) {
	opts, err := tenure.ClientOptions(cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.NewWithWatch(cp.Config(), opts)
	if err != nil {
		t.Fatal(err)
	}
	follow := func(since protocol.Revision) <-chan *v1alpha1.IPSubLease {
		ctx, stop := context.WithCancel(t.Context())
		heard, done := make(chan *v1alpha1.IPSubLease, 10), make(chan error, 1)
		go func() {
			done <- tenure.FollowSubLease(ctx, c, "4f2a-follow", since, func(o *v1alpha1.IPSubLease) { heard <- o })
		}()
		t.Cleanup(func() {
			stop()
			if err := <-done; err != nil {
				t.Errorf("since %s: %v", since, err)
			}
		})
		return heard
	}
	hear := func(from <-chan *v1alpha1.IPSubLease) *v1alpha1.IPSubLease {
		t.Helper()
		select {
		case o := <-from:
			return o
		case <-time.After(time.Minute):
			t.Fatal("nothing is heard")
			return nil
		}
	}
	made, err := cluster.Resource(subLeases).Create(t.Context(), mustParse(t, subLease("4f2a-follow", requestText)), createOptions)
	if err != nil {
		t.Fatal(err)
	}
	since, old := follow(protocol.Revision(made.GetResourceVersion())), follow("1")
	if o := hear(old); o == nil || o.ResourceVersion != made.GetResourceVersion() {
		t.Errorf("since 1: %v is heard first; want it as it was created", o)
	}
	checkAccepted(t, change(t, subLeases, "4f2a-follow", `{status: {refused: {reason: Exhausted, message: "full"}}}`, "status"))
	for name, from := range map[string]<-chan *v1alpha1.IPSubLease{"seen": since, "1": old} {
		if o := hear(from); o == nil || o.Status.Refused == nil {
			t.Errorf("since %s: %v is heard; want the answer, first of what came after", name, o)
		}
	}
	checkAccepted(t, change(t, subLeases, "4f2a-follow", `{metadata: {annotations: {tenure.dev/deletion: confirmed}}}`))
	if err := cluster.Resource(subLeases).Delete(t.Context(), "4f2a-follow", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, from := range map[string]<-chan *v1alpha1.IPSubLease{"seen": since, "1": old} {
		if o := hear(from); o == nil || o.Annotations["tenure.dev/deletion"] == "" {
			t.Errorf("since %s: %v is heard; want the annotation", name, o)
		}
		if o := hear(from); o != nil {
			t.Errorf("since %s: %v is heard; want that it is gone", name, o)
		}
	}
}
