package stage

import (
	"errors"
	"testing"
)

func TestRun(t *testing.T) {
	broken, late := errors.New("broken"), errors.New("late")
	for _, tt := range []struct {
		name string
		play func(s *Stage, did *string)
		want error
		did  string
	}{
		{"to the end", func(s *Stage, did *string) { s.Must(nil); *did += "a" }, nil, "a"},
		{"until it fails", func(s *Stage, did *string) { s.Must(broken); *did += "a" }, broken, ""},
		{"with what was deferred", func(s *Stage, did *string) {
			defer func() { *did += "a"; s.Must(late) }()
			s.Must(broken)
		}, broken, "a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var s Stage
			did := ""
			if err := s.Run(func() { tt.play(&s, &did) }); !errors.Is(err, tt.want) || did != tt.did {
				t.Errorf("%v, and %q was done; want %v and %q", err, did, tt.want, tt.did)
			}
		})
	}
}
