package main

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestKindsThatAreMissing: who asks a cluster without Tenure is told so.
func TestKindsThatAreMissing(t *testing.T) {
	resource := schema.GroupResource{Group: "tenure.dev", Resource: "ippools"}
	unknown := apierrors.NewGenericServerResponse(http.StatusNotFound, "get", resource, "", "404 page not found", 0, true)
	if got := hint(fmt.Errorf("list every IPPool: %w", unknown)); !strings.Contains(got, "is Tenure installed in this cluster") {
		t.Errorf("of a kind that is not there it says %q", got)
	}
	if got := hint(fmt.Errorf("read pool lan: %w", apierrors.NewNotFound(resource, "lan"))); got != "" {
		t.Errorf("of a pool that is not there it says %q", got)
	}
}

// TestSaysWhichRole: who may not read something is told which roles let one.
func TestSaysWhichRole(t *testing.T) {
	not := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New(`User "x" cannot list resource "pods"`))
	if got := hint(fmt.Errorf("list every Pod: %w", not)); !strings.Contains(got, "tenure-operator") {
		t.Errorf("it says of roles %q", got)
	}
	if got := hint(errors.New("down")); got != "" {
		t.Errorf("of another error it says %q", got)
	}
}
