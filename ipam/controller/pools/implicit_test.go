package pools

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/controller/networks"
)

// describing is a definition in whereabouts' form; later ones are younger.
func describing(i int, rest string) networks.Network {
	return networks.Read("ns", fmt.Sprint("def-", i), noon.Add(time.Duration(i)*time.Minute),
		fmt.Sprintf(`{"cniVersion":"1.0.0","name":"net-%d","type":"bridge","ipam":{"type":"tenure","network_name":"lan",%s}}`, i, rest))
}

// made is an implicit pool as its definitions make it.
func made(t *testing.T, by ...networks.Network) *v1alpha1.IPPool {
	t.Helper()
	p, err := decideImplicit(described{name: "lan", by: by})
	if err != nil || p.create == nil {
		t.Fatalf("plan %+v, %v; want one that creates", p, err)
	}
	return p.create
}

func TestDecideImplicit(t *testing.T) {
	a, b := describing(1, `"range":"10.0.0.0/24"`), describing(2, `"range":"10.0.1.0/24"`)
	other := describing(3, `"range":"10.0.0.0/24","gateway":"10.0.0.254"`)
	gateway := describing(1, `"range":"10.0.0.0/24","gateway":"10.0.0.1"`)
	person := pool("10.0.0.0/16")
	var many, all []networks.Network // as many CIDRs as a pool may have, and one more
	for i := range maxRanges + 1 {
		many, all = all, append(all, describing(i, fmt.Sprintf(`"range":"10.0.%d.0/24"`, i)))
	}
	gappy := func(n int) networks.Network { // n gaps in one CIDR
		exclude := make([]string, n)
		for i := range exclude {
			exclude[i] = fmt.Sprintf(`"10.0.0.%d"`, 2*i+2)
		}
		return describing(1, fmt.Sprintf(`"range":"10.0.0.0/24","exclude":[%s]`, strings.Join(exclude, ",")))
	}
	dying := made(t, a)
	deleted(dying)
	tests := []struct {
		name string
		seen described
		want string
	}{
		{"nothing", described{}, ""},
		{"described", described{by: []networks.Network{a, b}}, "create 10.0.0.0/24 10.0.1.0/24 by ns/def-1,ns/def-2"},
		{"as it is", described{by: []networks.Network{a, b}, pool: made(t, a, b)}, ""},
		{"grows", described{by: []networks.Network{a, b}, pool: made(t, a)}, "update 10.0.0.0/24 10.0.1.0/24 by ns/def-1,ns/def-2"},
		{"shrinks, also in use", described{by: []networks.Network{a}, pool: made(t, a, b), inUse: true}, "update 10.0.0.0/24 by ns/def-1"},
		{"another describes the same", described{by: []networks.Network{a, describing(4, `"range":"10.0.0.0/24"`)}, pool: made(t, a)},
			"update 10.0.0.0/24 by ns/def-1,ns/def-4"},
		{"nobody describes it, and nobody uses it", described{pool: made(t, a)}, "remove"},
		{"nobody describes it, in use", described{pool: made(t, a), inUse: true}, ""},
		{"being deleted", described{pool: dying}, ""},
		{"being deleted, and described", described{by: []networks.Network{a}, pool: dying}, ""},
		{"two gateways", described{by: []networks.Network{gateway, other}}, "create 10.0.0.0/24 gateway 10.0.0.1 by ns/def-1,ns/def-3, tell ns/def-3 DefinitionsDisagree"},
		{"as many CIDRs as there may be", described{by: many, pool: made(t, many...)}, ""},
		{"one more", described{by: all, pool: made(t, many...)}, "tell ns/def-64 PoolFull"},
		{"one more, at first", described{by: all}, "create" + cidrs(64) + " by " + names(64) + ", tell ns/def-64 PoolFull"},
		{"one more, an older", described{by: append([]networks.Network{describing(-1, `"range":"10.0.99.0/24"`)}, many...), pool: made(t, many...)}, "tell ns/def--1 PoolFull"},
		{"room for the younger of two", described{by: all[1:], pool: made(t, many...)}, "update" + strings.TrimPrefix(cidrs(65), cidrs(1)) + " by " + strings.TrimPrefix(names(65), names(1)+",")},
		{"one more, and one whose CIDR is there", described{by: append(all, describing(99, `"range":"10.0.7.0/24"`)), pool: made(t, many...)},
			"update" + cidrs(64) + " by " + names(64) + ",ns/def-99, tell ns/def-64 PoolFull"},
		{"more gaps than there may be", described{by: []networks.Network{gappy(maxExclude + 1)}}, "tell ns/def-1 PoolFull"},
		{"as many gaps as there may be", described{by: []networks.Network{gappy(maxExclude)}, pool: made(t, gappy(maxExclude))}, ""},
		{"more gaps in one CIDR, and others", described{by: []networks.Network{b, gappy(maxExclude + 1), describing(3, `"range":"10.0.2.0/24"`)}},
			"create 10.0.1.0/24 10.0.2.0/24 by ns/def-2,ns/def-3, tell ns/def-1 PoolFull"},
		{"a person's pool that has the range", described{by: []networks.Network{a}, pool: person}, ""},
		{"a person's pool that has not", described{by: []networks.Network{describing(5, `"range":"192.168.0.0/24"`)}, pool: person}, "tell ns/def-5 PoolOfAPerson"},
		{"a person's pool, described by nobody", described{pool: person}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.seen.name = "lan"
			got, err := decideImplicit(tt.seen)
			if err != nil {
				t.Fatal(err)
			}
			if got.in() != tt.want {
				t.Errorf("got %q; want %q", got.in(), tt.want)
			}
			follow(t, tt.seen, got)
		})
	}
}

// after returns what is seen once a plan has been followed.
func (d described) after(p implicitPlan) described {
	switch {
	case p.create != nil:
		d.pool = p.create
	case p.update != nil:
		d.pool = d.pool.DeepCopy()
		d.pool.Spec.Ranges, d.pool.Annotations[v1alpha1.AnnotationDefinitions] = p.update.ranges, p.update.definitions
	case p.remove:
		d.pool = nil
	}
	return d
}

// follow wants nothing to be written any more once a plan has been followed, and returns what
// is seen then.
func follow(t *testing.T, d described, p implicitPlan) described {
	t.Helper()
	d = d.after(p)
	again, err := decideImplicit(d)
	if err != nil || again.create != nil || again.update != nil || again.remove {
		t.Fatalf("then: %q, %v; want nothing", again.in(), err)
	}
	return d
}

// cidrs are those of the first n definitions with a CIDR each, and names their names.
func cidrs(n int) (text string) {
	for i := range n {
		text += fmt.Sprintf(" 10.0.%d.0/24", i)
	}
	return text
}

func names(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("ns/def-%d", i)
	}
	return strings.Join(all, ",")
}

// in tells a plan in a few words.
func (p implicitPlan) in() string {
	var lines []string
	tell := func(verb string, ranges []v1alpha1.Range, by string) {
		text := verb
		for _, r := range ranges {
			text += " " + r.CIDR
			if r.Gateway != "" {
				text += " gateway " + r.Gateway
			}
		}
		lines = append(lines, text+" by "+by)
	}
	if p.create != nil {
		tell("create", p.create.Spec.Ranges, p.create.Annotations[v1alpha1.AnnotationDefinitions])
	}
	if p.update != nil {
		tell("update", p.update.ranges, p.update.definitions)
	}
	if p.remove {
		lines = append(lines, "remove")
	}
	for _, name := range p.sorted() {
		lines = append(lines, "tell "+name+" "+p.notices[name].reason)
	}
	return strings.Join(lines, ", ")
}

// onlyDefinitions has every definition, and nothing else.
type onlyDefinitions struct{ client.Reader }

func (onlyDefinitions) Get(_ context.Context, k client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	if _, ok := o.(*nad.NetworkAttachmentDefinition); ok {
		return nil
	}
	return apierrors.NewNotFound(schema.GroupResource{Resource: "ippools"}, k.Name)
}

func (onlyDefinitions) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return nil
}

// refuser answers every create with an error.
type refuser struct {
	client.Client
	err error
}

func (w refuser) Create(context.Context, client.Object, ...client.CreateOption) error { return w.err }

// describer has one definition of a pool.
type describer struct{ Describing }

func (describer) OfPool(context.Context, string) ([]networks.Network, error) {
	return []networks.Network{networks.Read("ns", "lan", time.Time{},
		`{"cniVersion":"1.0.0","name":"lan","type":"bridge","ipam":{"type":"tenure","range":"10.0.0.0/24","network_name":"lan"}}`)}, nil
}

// TestRefusedPoolIsMadeLater: who may write it is known a moment after an API server has
// started; what is wrong with it stays so until its definition changes.
func TestRefusedPoolIsMadeLater(t *testing.T) {
	pools := schema.GroupResource{Group: "tenure.dev", Resource: "ippools"}
	for _, tt := range []struct {
		err   error
		again bool
	}{
		{apierrors.NewForbidden(pools, "lan", errors.New("RBAC: clusterrole not found")), true},
		{apierrors.NewUnauthorized("Unauthorized"), true},
		{errors.New("no answer"), true},
		{apierrors.NewInvalid(schema.GroupKind{Kind: "IPPool"}, "lan", nil), false},
		{apierrors.NewBadRequest("no JSON"), false},
		{apierrors.NewRequestEntityTooLargeError("too large"), false},
	} {
		r := &Implicit{Cache: onlyDefinitions{}, Write: refuser{err: tt.err}, Networks: describer{}, Events: events.NewFakeRecorder(10), Log: slog.New(slog.DiscardHandler)}
		_, got := r.Reconcile(t.Context(), request("lan"))
		if got == nil || errors.Is(got, reconcile.TerminalError(nil)) == tt.again {
			t.Errorf("%v: got %v; want it tried again: %t", tt.err, got, tt.again)
		}
	}
}

func TestDefinitionsFitAnAnnotation(t *testing.T) {
	var many []networks.Network
	for i := range 5000 {
		many = append(many, networks.Network{Namespace: "namespace", Definition: fmt.Sprint("definition-", i)})
	}
	if got := definitions(many); len(got) > 17<<10 || !strings.HasSuffix(got, ",…") {
		t.Errorf("%d bytes, ending in %q; want at most 16 KiB and a mark", len(got), got[len(got)-10:])
	}
}
