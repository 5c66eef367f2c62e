package kube

import (
	"errors"
	"math"
	"net/netip"
	"reflect"
	"testing"
	"time"

	coordination "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// writtenRegistration is a registration, and the object that it is written as.
func writtenRegistration() (protocol.Registration, *coordination.Lease) {
	s := protocol.Registration{
		Meta: protocol.Meta{Name: "n1", UID: "u", Revision: "700"}, Node: "n1", NodeUID: "node", Store: "s", Machine: "m", Boot: "b", Term: 4, Fence: time.Minute,
		Beat: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC), Writes: 9, Recalls: []protocol.Recall{{ID: "r", Lease: "lan.1", Ranges: []string{"10.0.0.1-10.0.0.2"}}},
		Former: []protocol.Former{{Store: "before", Machine: "m2", Term: 3, Fence: time.Minute, Ended: true}}, Restored: "seen w",
		Strangers: []protocol.Stranger{{Pool: "lan", Addr: netip.MustParseAddr("10.0.0.9"), MAC: "02:00:00:00:00:09", At: time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)}},
	}
	return s, &coordination.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u", ResourceVersion: "700", Annotations: regAnnotations(s)}, Spec: regSpec(s),
	}
}

// TestGarbledRegistration: of a registration that is garbled all else is read, and nothing hides it
// that leaves anything of it.
func TestGarbledRegistration(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(o *coordination.Lease)
		want   func(s *protocol.Registration)
		fails  bool
	}{
		{"whole", func(*coordination.Lease) {}, func(*protocol.Registration) {}, false},
		{"no boot", func(o *coordination.Lease) { delete(o.Annotations, annotationBoot) }, func(s *protocol.Registration) { s.Boot = "" }, false},
		{"the node's UID alone", func(o *coordination.Lease) { o.Annotations = map[string]string{annotationNodeUID: "node"} },
			func(s *protocol.Registration) {
				s.Machine, s.Boot, s.Restored, s.Writes, s.Recalls, s.Former, s.Strangers = "", "", "", 700, nil, nil, nil
			}, false},
		{"no turn", func(o *coordination.Lease) { delete(o.Annotations, annotationWrites) }, func(s *protocol.Registration) { s.Writes = 700 }, false},
		{"a turn that is no number", func(o *coordination.Lease) { o.Annotations[annotationWrites] = "9x" }, func(s *protocol.Registration) { s.Writes = 700 }, true},
		{"recalls that are no list", func(o *coordination.Lease) { o.Annotations[annotationRecalls] = "{}" }, func(s *protocol.Registration) { s.Recalls = nil }, true},
		{"former registrants, half of them", func(o *coordination.Lease) { o.Annotations[annotationFormer] = `[{"store":"before","term":3},` },
			func(s *protocol.Registration) { s.Former = nil }, true},
		{"strangers that are no list", func(o *coordination.Lease) { o.Annotations[annotationStrangers] = "x" }, func(s *protocol.Registration) { s.Strangers = nil }, true},
		{"a former registrant of no term", func(o *coordination.Lease) { o.Annotations[annotationFormer] = `[{"store":"before","term":"x"}]` },
			func(s *protocol.Registration) { s.Former = nil }, true},
		{"a fence of many years", func(o *coordination.Lease) {
			long := int32(math.MaxInt32)
			o.Spec.LeaseDurationSeconds = &long
			o.Annotations[annotationFormer] = `[{"store":"before","term":3,"fence":9223372036854775807}]`
		}, func(s *protocol.Registration) {
			s.Fence, s.Former = protocol.MaxFence, []protocol.Former{{Store: "before", Term: 3, Fence: protocol.MaxFence}}
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want, o := writtenRegistration()
			tt.change(o)
			tt.want(&want)
			got, err := RegistrationOf(o)
			if bad, garbled := errors.AsType[*RegistrationError](err); garbled != tt.fails || garbled && !reflect.DeepEqual(bad.Registration, got) {
				t.Errorf("error %v; want one with the registration: %v", err, tt.fails)
			}
			got.Beat = got.Beat.UTC()
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v\nwant %+v", got, want)
			}
			if !IsRegistration(o) {
				t.Error("it is no registration")
			}
		})
	}
	leader := &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Name: "tenure-controller", Annotations: map[string]string{"example.org/x": "y"}}}
	if IsRegistration(leader) {
		t.Error("the lease by which a controller leads is a registration")
	}
}

// TestStrangersOnARegistration: they are written while there are some, and removed after that.
// Otherwise nothing is said of them: policies of the version before would refuse the heartbeat.
func TestStrangersOnARegistration(t *testing.T) {
	s, o := writtenRegistration()
	if o.Annotations[annotationStrangers] == "" {
		t.Error("they are not written")
	}
	s.Strangers = nil
	all := regAnnotations(s)
	if _, there := all[annotationStrangers]; there {
		t.Error("none are written as an annotation")
	}
	if value, there := regAnnotationsPatch(all)[annotationStrangers]; !there || value != nil {
		t.Errorf("an update writes %v; want it to remove the annotation", value)
	}
}
