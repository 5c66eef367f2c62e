package judge_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	api "github.com/tenure-ipam/tenure/api/podnetwork"
	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/attach/judge"
	"github.com/tenure-ipam/tenure/ipam/access"
)

// known is a cluster that a test makes up.
type known struct {
	networks    map[string]judge.Network
	attachments map[string]judge.Attachment
	allowed     bool
	down        error
}

func (k known) PodNetwork(_ context.Context, name string) (judge.Network, bool, error) {
	n, ok := k.networks[name]
	return n, ok, k.down
}

func (k known) Attachment(_ context.Context, namespace, name string) (judge.Attachment, bool, error) {
	a, ok := k.attachments[namespace+"/"+name]
	return a, ok, k.down
}

func (k known) Labels(context.Context, string) (map[string]string, error) {
	return map[string]string{}, nil
}

func (k known) MayUse(context.Context, string, string) (bool, error) { return k.allowed, nil }

// lan is a network that is as it should be.
func lan(change ...func(*judge.Network)) judge.Network {
	n := judge.Network{Provider: api.Provider, Enabled: true, Ready: true, Definition: facts.Ref{Namespace: "infra", Name: "lan"}}
	for _, c := range change {
		c(&n)
	}
	return n
}

func TestJudge(t *testing.T) {
	asked := access.Rule{Of: access.PodNetwork, Asks: true}
	mine := judge.Attachment{UID: "a1", Network: "lan", Ready: true, Definition: facts.Ref{Namespace: "tenure-system", Name: "m"}}
	tests := []struct {
		name    string
		network judge.Network
		mine    judge.Attachment
		list    []api.Element
		want    facts.PodNetwork // of the last element; Refused is a part of the text
	}{
		{"a network", lan(), mine, []api.Element{{Network: "lan"}}, facts.PodNetwork{Name: "lan", Definition: lan().Definition}},
		{"Q1 an attachment with parameters", lan(), mine, []api.Element{{Attachment: "mine"}}, facts.PodNetwork{Name: "lan", Definition: mine.Definition, MadeFor: "/a1"}},
		{"Q1 an attachment without", lan(), judge.Attachment{Network: "lan", Ready: true}, []api.Element{{Attachment: "mine"}}, facts.PodNetwork{Name: "lan", Definition: lan().Definition}},
		{"W4 missing", lan(), mine, []api.Element{{Network: "wan"}}, facts.PodNetwork{Name: "wan", Refused: "PodNetwork wan does not exist", Later: true}},
		{"W4 not Ready", lan(func(n *judge.Network) { n.Ready, n.NotReady = false, "ParamsNotReady: x" }), mine, []api.Element{{Network: "lan"}}, facts.PodNetwork{Name: "lan", Refused: "PodNetwork lan is not Ready: ParamsNotReady: x", Later: true}},
		{"P8 disabled", lan(func(n *judge.Network) { n.Enabled = false }), mine, []api.Element{{Network: "lan"}}, facts.PodNetwork{Name: "lan", Refused: "is disabled (spec.enabled is false)", Later: true}},
		{"P9 being deleted", lan(func(n *judge.Network) { n.Deleting = true }), mine, []api.Element{{Network: "lan"}}, facts.PodNetwork{Name: "lan", Refused: "is being deleted", Later: true}},
		{"P7 another provider's", lan(func(n *judge.Network) { n.Provider = "foo.io/bar" }), mine, []api.Element{{Network: "lan"}}, facts.PodNetwork{Name: "lan", Provider: "foo.io/bar"}},
		{"P7 nobody's", lan(func(n *judge.Network) { n.Provider = "" }), mine, []api.Element{{Network: "lan"}}, facts.PodNetwork{Name: "lan", Refused: "has no provider", Later: true}},
		{"no configuration", lan(func(n *judge.Network) { n.Definition = facts.Ref{} }), mine, []api.Element{{Network: "lan"}}, facts.PodNetwork{Name: "lan", Refused: "has no parametersRefs", Later: true}},
		{"W9 not allowed", lan(func(n *judge.Network) { n.Access = asked }), mine, []api.Element{{Network: "lan"}}, facts.PodNetwork{Name: "lan", Refused: "the verb use on podnetworks.tenure.dev/lan"}},
		{"Q3 an attachment that is being deleted", lan(), judge.Attachment{Network: "lan", Deleting: true}, []api.Element{{Attachment: "mine"}}, facts.PodNetwork{Refused: "PodNetworkAttachment shop/mine is being deleted", Later: true}},
		{"Q1 an attachment that is not Ready", lan(), judge.Attachment{Network: "lan", NotReady: "PodNetworkNotReady"}, []api.Element{{Attachment: "mine"}}, facts.PodNetwork{Refused: "PodNetworkAttachment shop/mine is not Ready: PodNetworkNotReady", Later: true}},
		{"an attachment of the default network", lan(), judge.Attachment{Network: "default", NotReady: "PodNetworkNotReady"}, []api.Element{{Attachment: "mine"}}, facts.PodNetwork{Name: "default", Refused: "list the PodNetwork"}},
		{"W9 how a network is is not said to who may not use it", lan(func(n *judge.Network) { n.Access, n.Ready, n.NotReady = asked, false, "secret" }), mine, []api.Element{{Network: "lan"}}, facts.PodNetwork{Name: "lan", Refused: "the verb use on podnetworks.tenure.dev/lan"}},
		{"made for it", lan(func(n *judge.Network) { n.UID, n.Made = "u1", true }), mine, []api.Element{{Network: "lan"}}, facts.PodNetwork{Name: "lan", Definition: lan().Definition, MadeFor: "u1"}},
		{"no attachment", lan(), mine, []api.Element{{Attachment: "yours"}}, facts.PodNetwork{Refused: "there is no PodNetworkAttachment yours in namespace shop", Later: true}},
		{"W4 a network and its attachment", lan(), mine, []api.Element{{Network: "lan"}, {Attachment: "mine"}}, facts.PodNetwork{Name: "lan", Definition: mine.Definition, MadeFor: "/a1", Refused: "it is of PodNetwork lan, and so is element 1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			k := known{networks: map[string]judge.Network{"lan": tt.network, "default": {Enabled: true, Ready: true}}, attachments: map[string]judge.Attachment{"shop/mine": tt.mine}}
			all, err := judge.List(t.Context(), k, "shop", tt.list)
			if err != nil {
				t.Fatal(err)
			}
			got := all[len(all)-1]
			if !strings.Contains(got.Refused, tt.want.Refused) || (got.Refused == "") != (tt.want.Refused == "") {
				t.Errorf("refused: %q; want %q", got.Refused, tt.want.Refused)
			}
			got.Refused, tt.want.Refused = "", ""
			if got != tt.want {
				t.Errorf("got %+v; want %+v", got, tt.want)
			}
		})
	}
}

// TestJudgeDefault: the default network needs no provider and no configuration.
func TestJudgeDefault(t *testing.T) {
	k := known{networks: map[string]judge.Network{"default": {Enabled: true, Ready: true}}}
	all, err := judge.List(t.Context(), k, "shop", []api.Element{{Network: "default"}})
	if err != nil || all[0] != (facts.PodNetwork{Name: "default"}) {
		t.Errorf("got %+v, %v; want the default network", all, err)
	}
}

func TestJudgeSaysWhatIsNotKnown(t *testing.T) {
	down := errors.New("the API server is away")
	_, err := judge.List(t.Context(), known{down: down}, "shop", []api.Element{{Network: "lan"}})
	if !errors.Is(err, down) || !strings.Contains(err.Error(), "PodNetwork lan: ") {
		t.Errorf("got %v; want %v of PodNetwork lan", err, down)
	}
}

// TestJudgeLooksAtNoMoreThanNeeded: a pod that lists many networks which do not exist is
// attached to none.
func TestJudgeLooksAtNoMoreThanNeeded(t *testing.T) {
	var elements []api.Element
	for i := range 17 {
		elements = append(elements, api.Element{Network: fmt.Sprintf("none-%d", i)})
	}
	all, err := judge.List(t.Context(), known{}, "shop", elements)
	if err != nil || !strings.Contains(all[15].Refused, "does not exist") || !strings.Contains(all[16].Refused, "not looked at, since 16 before it") || !all[16].Later {
		t.Errorf("got %+v, %v; want the last not looked at", all, err)
	}
}
