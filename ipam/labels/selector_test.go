package labels_test

import (
	"math/rand/v2"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"

	"github.com/tenure-ipam/tenure/ipam/labels"
)

// TestSelectorIsKubernetes compares random selectors with Kubernetes' own, and what
// they are written as with what Kubernetes reads out of that.
func TestSelectorIsKubernetes(t *testing.T) {
	const seed = 3
	rng := rand.New(rand.NewPCG(seed, 0))
	keys, values := []string{"a", "b", "x.io/c"}, []string{"1", "2", ""}
	some := func(all []string) (few []string) {
		for _, v := range all {
			if rng.IntN(2) == 0 {
				few = append(few, v)
			}
		}
		return few
	}
	operators := []labels.Operator{labels.In, labels.NotIn, labels.Exists, labels.DoesNotExist}
	matched := 0
	const rounds = 5000
	for range rounds {
		s, theirs := labels.Selector{Labels: map[string]string{}}, metav1.LabelSelector{MatchLabels: map[string]string{}}
		if rng.IntN(3) == 0 {
			for _, k := range some(keys) {
				v := values[rng.IntN(len(values))]
				s.Labels[k], theirs.MatchLabels[k] = v, v
			}
		}
		for range rng.IntN(3) {
			r := labels.Requirement{Key: keys[rng.IntN(len(keys))], Operator: operators[rng.IntN(len(operators))]}
			if r.Operator == labels.In || r.Operator == labels.NotIn {
				if r.Values = some(values); len(r.Values) == 0 {
					r.Values = values
				}
			}
			s.Requirements = append(s.Requirements, r)
			theirs.MatchExpressions = append(theirs.MatchExpressions, metav1.LabelSelectorRequirement{Key: r.Key, Operator: metav1.LabelSelectorOperator(r.Operator), Values: r.Values})
		}
		has := map[string]string{}
		for _, k := range some(keys) {
			has[k] = values[rng.IntN(len(values))]
		}
		want, err := metav1.LabelSelectorAsSelector(&theirs)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Matches(has); got != want.Matches(k8slabels.Set(has)) {
			t.Fatalf("seed %d: %+v on %v: got %t; want %t", seed, s, has, got, !got)
		} else if got {
			matched++
		}
		written, err := k8slabels.Parse(s.String())
		if err != nil || written.Matches(k8slabels.Set(has)) != s.Matches(has) {
			t.Fatalf("seed %d: %+v is written as %q, which is another: %v", seed, s, s, err)
		}
	}
	if matched < rounds/10 || matched > rounds*9/10 {
		t.Errorf("%d of %d match; want both kinds", matched, rounds)
	}
}

func TestAnOperatorOfALaterVersionLetsNobody(t *testing.T) {
	s := labels.Selector{Requirements: []labels.Requirement{{Key: "a", Operator: "Like", Values: []string{"1"}}}}
	if s.Matches(map[string]string{"a": "1"}) {
		t.Error("it matches; want nobody let in by what is not understood")
	}
	if got, want := s.String(), "a Like (1)"; got != want {
		t.Errorf("written %q; want %q", got, want)
	}
}
