package agent

import (
	"errors"
	"fmt"
	"testing"
)

func TestCountErrors(t *testing.T) {
	one := errors.New("one")
	for _, tt := range []struct {
		err  error
		want int
	}{
		{nil, 0}, {one, 1}, {errors.Join(one, one), 2}, {errors.Join(one, errors.Join(one, one)), 3},
		{fmt.Errorf("store: %w", one), 1}, {fmt.Errorf("%w and %w", one, one), 2},
	} {
		if got := countErrors(tt.err); got != tt.want {
			t.Errorf("%v has %d errors; want %d", tt.err, got, tt.want)
		}
	}
}
