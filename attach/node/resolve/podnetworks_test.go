package resolve

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"

	api "github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/attach/judge"
	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// oneNetwork is a cluster with PodNetwork lan. No watch shows it.
type oneNetwork struct {
	ready bool
	reads int
}

func (o *oneNetwork) ReadPodNetwork(_ context.Context, name string) (judge.Network, protocol.Outcome, error) {
	o.reads++
	if name != "lan" {
		return judge.Network{}, protocol.NotFound, nil
	}
	return judge.Network{
		Provider: api.Provider, Enabled: true, Ready: o.ready, NotReady: "ParamsNotReady",
		Definition: facts.Ref{Namespace: "infra", Name: "lan"},
	}, protocol.Done, nil
}

func (o *oneNetwork) FollowPodNetwork(ctx context.Context, _ string, _ func(judge.Network, bool)) error {
	<-ctx.Done()
	return nil
}

func (o *oneNetwork) ReadAttachment(context.Context, facts.Ref) (judge.Attachment, protocol.Outcome, error) {
	return judge.Attachment{}, protocol.NotFound, nil
}

func (o *oneNetwork) FollowAttachment(ctx context.Context, _ facts.Ref, _ func(judge.Attachment, bool)) error {
	<-ctx.Done()
	return nil
}

func (o *oneNetwork) MayUse(context.Context, string, string) (bool, error) { return true, nil }

// TestPodNetworksAreAnswered (W7): the agent judges what a pod lists, and tells the definitions
// that the networks have; where it serves none it says so.
func TestPodNetworksAreAnswered(t *testing.T) {
	for _, tt := range []struct {
		name   string
		served bool
		ready  bool
		want   string
	}{
		{"served", true, true, `"networks":[{"namespace":"infra","name":"lan","config":"{}","annotations":{}}],"podNetworks":[{"name":"lan","definition":{"namespace":"infra","name":"lan"}}]`},
		{"not Ready", true, false, `"podNetworks":[{"name":"lan","refused":"PodNetwork lan is not Ready: ParamsNotReady","later":true}]`},
		{"not served", false, true, `"noPodNetworks":true`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld()
			p := podOf("p", "u1", "")
			p.Annotations = map[string]string{api.AnnotationNetworks: `[{"podNetworkName": "lan"}]`}
			w.pods[podName{"ns", "p"}] = p
			config := "{}"
			ref := facts.Ref{Namespace: "infra", Name: "lan"}
			w.definitions[ref] = facts.Definition{Ref: ref, Config: &config, Annotations: map[string]string{}}
			cluster := w.cluster()
			if tt.served {
				cluster.PodNetworks = &oneNetwork{ready: tt.ready}
			}
			r, err := New(DefaultConfig(t.TempDir()), cluster, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			resp := r.Serve(t.Context(), agentapi.Request{Verb: agentapi.Facts, Ask: json.RawMessage(`{"pod": {"namespace": "ns", "name": "p"}}`)})
			if resp.Error != nil {
				t.Fatal(resp.Error)
			}
			var got, want facts.Answer
			if err := json.Unmarshal(resp.Facts, &got); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(`{`+tt.want+`}`), &want); err != nil {
				t.Fatal(err)
			}
			if len(got.PodNetworks) != len(want.PodNetworks) || len(want.PodNetworks) > 0 && got.PodNetworks[0] != want.PodNetworks[0] ||
				got.NoPodNetworks != want.NoPodNetworks || len(got.Networks) != len(want.Networks) {
				t.Errorf("answer %s; want %s", resp.Facts, tt.want)
			}
		})
	}
}

// TestPodIPsAreWritten (W5): with the status, in one write.
func TestPodIPsAreWritten(t *testing.T) {
	s := status{Text: "[1]", PodIPs: "[2]"}
	if got := s.annotations(); len(got) != 2 || got[api.AnnotationIPs] != "[2]" {
		t.Errorf("annotations %v; want both", got)
	}
	if got := (status{Text: "[1]"}).annotations(); len(got) != 1 {
		t.Errorf("annotations %v of a pod without PodNetworks; want one", got)
	}
}
