package audit

import (
	"strings"
	"testing"
	"time"
)

// TestWebhooks: a certificate that is missing, or will end soon, is worth knowing.
func TestWebhooks(t *testing.T) {
	const soon = 14 * 24 * time.Hour
	for what, tt := range map[string]struct {
		webhooks *Webhooks
		want     string
	}{
		"there are none":       {nil, ""},
		"it ends in years":     {&Webhooks{lookedAt.Add(2 * soon), soon}, ""},
		"it ends in days":      {&Webhooks{lookedAt.Add(soon / 2), soon}, "certificate ends on"},
		"it ended yesterday":   {&Webhooks{lookedAt.Add(-24 * time.Hour), soon}, "has ended on"},
		"there is none at all": {&Webhooks{time.Time{}, soon}, "no certificate"},
	} {
		s := State{Now: lookedAt, Webhooks: tt.webhooks}
		found := Lasting(Look(s), Look(s), time.Hour)
		switch {
		case tt.want == "" && len(found) > 0:
			t.Errorf("%s: found %+v; want nothing", what, found)
		case tt.want != "" && (len(found) != 1 || found[0].Wrong || found[0].Rule != WebhooksUnused || !strings.Contains(found[0].What, tt.want)):
			t.Errorf("%s: found %+v; want a note that says %q", what, found, tt.want)
		}
	}
}
