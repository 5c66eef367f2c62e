package pools

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-ipam/tenure/api/v1alpha1"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// TestAboutStrangers: the condition names each address, who has it, and what ends that. At the
// bound it says that no more are kept.
func TestAboutStrangers(t *testing.T) {
	if _, message := aboutStrangers(nil); message != "" {
		t.Errorf("of none it says %q", message)
	}
	one := v1alpha1.IPReservation{
		ObjectMeta: metav1.ObjectMeta{Name: "stranger-lan-10-0-0-9", Labels: map[string]string{v1alpha1.LabelStranger: "02-00-00-00-00-09"}},
		Spec:       v1alpha1.IPReservationSpec{Pool: "lan", Address: "10.0.0.9"},
	}
	all := []v1alpha1.IPReservation{one}
	for want := v1alpha1.ReasonAddressesKept; ; all = append(all, one) {
		if len(all) == protocol.MaxStrangers {
			want = v1alpha1.ReasonTooManyStrangers
		}
		reason, message := aboutStrangers(all)
		if reason != want || !strings.Contains(message, "10.0.0.9 (hardware address 02:00:00:00:00:09, IPReservation stranger-lan-10-0-0-9)") {
			t.Errorf("of %d it says %s, %q; want %s", len(all), reason, message, want)
		}
		if want == v1alpha1.ReasonTooManyStrangers {
			break
		}
	}
}
