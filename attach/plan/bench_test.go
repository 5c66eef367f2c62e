package plan

import (
	"encoding/json"
	"testing"

	"github.com/tenure-ipam/tenure/api/npwg"
	"github.com/tenure-ipam/tenure/attach/facts"
)

// BenchmarkMake makes the plan of a pod with a default network and two more, and
// writes it down: the share of the plan in an ADD.
func BenchmarkMake(b *testing.B) {
	stdin := []byte(`{"cniVersion": "1.1.0", "name": "tenure", "type": "tenure-attach", ` + inlineDefault + `}`)
	pod := facts.PodRef{Namespace: "shop", Name: "web", UID: "u"}
	answer := facts.Answer{
		Pod:      facts.Pod{PodRef: pod, Annotations: map[string]string{npwg.AnnotationNetworks: `[{"name": "a", "ips": ["10.0.0.1/24"]}, {"name": "b"}]`}},
		Networks: []facts.Definition{def("a", bridge("a", "ips")), def("b", bridge("b"))},
	}
	for b.Loop() {
		c, err := ParseConfig(stdin)
		if err != nil {
			b.Fatal(err)
		}
		p, err := Make(c, CallOf(pod), answer, Files{})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := json.Marshal(p); err != nil {
			b.Fatal(err)
		}
	}
}
