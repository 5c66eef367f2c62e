package kube_test

import (
	"testing"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/kube"
)

// TestAccessOf: a word that this program does not know opens no pool.
func TestAccessOf(t *testing.T) {
	for word, asks := range map[v1alpha1.Access]bool{"": false, v1alpha1.AccessEveryone: false, v1alpha1.AccessRBAC: true, "Later": true} {
		o := &v1alpha1.IPPool{}
		o.Spec.Access = word
		if got := kube.AccessOf(o).Asks; got != asks {
			t.Errorf("access %q: the authorizer is asked: %v; want %v", word, got, asks)
		}
	}
}
