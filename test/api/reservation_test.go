package api_test

import "testing"

// reservation returns the text of an IPReservation with these fields of its spec.
func reservation(fields string) string {
	return `{apiVersion: tenure.dev/v1alpha1, kind: IPReservation, metadata: {name: printer}, spec: {` + fields + `}}`
}

func TestReservation(t *testing.T) {
	checkAccepted(t, dryRun(t, reservations, reservation(`pool: lan, address: 10.0.0.9, for: "a printer"`)))
	checkAccepted(t, dryRun(t, reservations, reservation(`pool: lan, address: "fd00::9", for: "a printer", until: "2027-01-02T03:04:05Z"`)))
	tests := []struct {
		name, fields string
		want         []string
	}{
		{"a range", `pool: lan, address: 10.0.0.0/30, for: x`, []string{"spec.address", "write one such as"}},
		{"long form", `pool: lan, address: "fd00:0::9", for: x`, []string{"spec.address", "canonical form"}},
		{"for nobody", `pool: lan, address: 10.0.0.9`, []string{"spec.for: Required"}},
		{"no pool", `address: 10.0.0.9, for: x`, []string{"spec.pool: Required"}},
		{"until some time", `pool: lan, address: 10.0.0.9, for: x, until: soon`, []string{"spec.until"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { checkRefused(t, dryRun(t, reservations, reservation(tt.fields)), tt.want...) })
	}
	create(t, reservations, reservation(`pool: lan, address: 10.0.0.9, for: "a printer"`))
	checkRefused(t, change(t, reservations, "printer", `{spec: {address: 10.0.0.10}}`), "spec.address", "make another reservation")
	checkAccepted(t, change(t, reservations, "printer", `{spec: {for: "another printer"}}`))
}
