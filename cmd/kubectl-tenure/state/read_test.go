package state

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
)

// pagesOf is a cluster whose lists are answered so, by what continues them.
type pagesOf struct {
	client.Client
	pages map[string]page
	asked []string
}

type page struct {
	pods []string
	next string
	err  error
	once bool // err is the answer to the first who asks
}

func (p *pagesOf) List(_ context.Context, into client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	p.asked = append(p.asked, o.Continue)
	answer, ok := p.pages[o.Continue]
	if !ok || o.Limit != 500 {
		return fmt.Errorf("continued by %q, %d objects", o.Continue, o.Limit)
	}
	if answer.once {
		p.pages[o.Continue] = page{pods: answer.pods, next: answer.next}
	}
	pods := into.(*corev1.PodList)
	for _, name := range answer.pods {
		pods.Items = append(pods.Items, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	pods.Continue = answer.next
	return answer.err
}

// expired is the answer to a continuation of a state that etcd does not have any more.
func expired(rest string) error {
	err := apierrors.NewResourceExpired("The provided continue parameter is too old")
	err.ErrStatus.Continue = rest
	return err
}

// TestListsGoOn: a list that takes longer than the API server keeps its state does not
// fail, and has everything once, what cannot be read too.
func TestListsGoOn(t *testing.T) {
	down := errors.New("down")
	for _, tt := range []struct {
		name  string
		pages map[string]page
		want  string
		err   string
		begun int // 0: once
	}{
		{"in pages", map[string]page{"": {pods: []string{"a", "b"}, next: "1"}, "1": {pods: []string{"c"}}}, "a b c", "", 0},
		{"a state that is forgotten, twice", map[string]page{
			"": {pods: []string{"a"}, next: "1"}, "1": {err: expired("1+")}, "1+": {pods: []string{"b"}, next: "2"}, "2": {err: expired("2+")}, "2+": {pods: []string{"c"}},
		}, "a b c", "", 0},
		{"a state that is forgotten, and nothing goes on at first", map[string]page{
			"": {pods: []string{"a", "bad"}, next: "1"}, "1": {err: expired(""), once: true, pods: []string{"b", "worse"}},
		}, "a b, not pod bad, not pod worse", "", 2},
		{"a state that is forgotten, and nothing goes on", map[string]page{"": {pods: []string{"a"}, next: "1"}, "1": {err: expired("")}}, "", "too old", 3},
		{"a state that is forgotten for ever", map[string]page{"": {pods: []string{"a"}, next: "1"}, "1": {err: expired("1")}}, "", "too old", 3},
		{"no answer", map[string]page{"": {pods: []string{"a"}, next: "1"}, "1": {err: down}}, "", "down", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &pagesOf{pages: tt.pages}
			not := NewUnread(c)
			all, err := Read(t.Context(), not.Of("pod"), &corev1.PodList{}, func(l *corev1.PodList) []corev1.Pod { return l.Items }, func(o *corev1.Pod) (string, error) {
				if len(o.Name) > 1 {
					return "", errors.New("garbled")
				}
				return o.Name, nil
			})
			got := strings.Join(all, " ")
			for _, u := range not.All {
				got += ", not " + u.Object
			}
			if got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("got %q, %v after %q; want %q, error %q", got, err, c.asked, tt.want, tt.err)
			}
			begun := len(slices.DeleteFunc(c.asked, func(next string) bool { return next != "" }))
			if tt.begun == 0 {
				tt.begun = 1
			}
			if begun != tt.begun {
				t.Errorf("begun %d times; want %d", begun, tt.begun)
			}
		})
	}
}

// TestSaysWhatItLists: who may not list something is told in words of the cluster what that is.
func TestSaysWhatItLists(t *testing.T) {
	not := apierrors.NewForbidden(corev1.Resource("pods"), "", errors.New(`User "x" cannot list resource "pods"`))
	c := &pagesOf{pages: map[string]page{"": {err: not}}}
	_, err := session.ListAll(t.Context(), c, new(corev1.PodList), func(l *corev1.PodList) []corev1.Pod { return l.Items })
	if err == nil || !strings.HasPrefix(err.Error(), "list every Pod: pods is forbidden") {
		t.Errorf("got %v", err)
	}
}
