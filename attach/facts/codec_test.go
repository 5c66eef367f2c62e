package facts

import (
	"encoding/json"
	"testing"

	"github.com/tenure-ipam/tenure/ipam/lean/plainjson"
	"github.com/tenure-ipam/tenure/ipam/lean/plainjson/plainjsontest"
)

func TestWrittenByHand(t *testing.T) {
	q, r := plainjsontest.Full[Question](t), plainjsontest.Full[Report](t)
	plainjsontest.Written(t, q.AppendTo(nil), q)
	plainjsontest.Written(t, r.AppendTo(nil), r)
	plainjsontest.Written(t, Question{}.AppendTo(nil), Question{})
	plainjsontest.Written(t, Report{}.AppendTo(nil), Report{})
	r.Status = json.RawMessage("[\r\n1]")
	plainjsontest.Written(t, r.AppendTo(nil), Report{Pod: r.Pod, ContainerID: r.ContainerID, Made: r.Made, Status: json.RawMessage("[  1]"), PodIPs: r.PodIPs, Warnings: r.Warnings, Notes: r.Notes})
}

func TestReadByHand(t *testing.T) {
	for _, want := range []Answer{plainjsontest.Full[Answer](t), {}} {
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseAnswer(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		plainjsontest.Same(t, got, want)
	}
	for _, text := range []string{`null`, `[]`, `{"pod":5}`, `{"pod":{"name":5}}`, `{"networks":{}}`, `{"networks":[{"devices":[1]}]}`, `{"pod":{"annotations":{"a":1}}}`} {
		if a, err := ParseAnswer(json.RawMessage(text)); err == nil {
			t.Errorf("%s is read as %+v; want an error", text, a)
		}
	}
	a, err := ParseAnswer(json.RawMessage(`{"pod":{"name":"p","annotations":null,"later":1},"networks":[{"name":"n","config":null}],"later":{}}`))
	if err != nil || a.Pod.Name != "p" || len(a.Networks) != 1 || a.Networks[0].Config != nil {
		t.Errorf("what a later agent may say is read as %+v, %v", a, err)
	}
}

// FuzzParseAnswer: whatever is valid JSON, nothing panics, and what is read is
// written and read again.
func FuzzParseAnswer(f *testing.F) {
	full, err := json.Marshal(plainjsontest.Full[Answer](f))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(full)
	f.Add([]byte(`{"networks":[{"name":"\ud800"}],"pod":{}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if !json.Valid(text) {
			return
		}
		got, err := ParseAnswer(plainjson.Trim(text))
		if err != nil {
			return
		}
		again, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		var same Answer
		if err := json.Unmarshal(again, &same); err != nil {
			t.Fatal(err)
		}
		plainjsontest.Same(t, got, same)
	})
}
