// Package stage lets programs of many steps, as the demo and the benchmark are, fail as
// tests do: what a step cannot do without it says by Must, in the place of an error that
// every caller hands on.
package stage

import (
	"fmt"
	"runtime"
)

// A Stage is where such a program is played. The zero Stage is ready.
type Stage struct{ fault error }

// Run calls play on a goroutine of its own, and returns what it has failed with.
func (s *Stage) Run(play func()) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		play()
	}()
	<-done
	return s.fault
}

// Must ends the play if there is an error, as a test's Fatal ends the test: what was
// deferred is done. Only the goroutine of Run may call it. The first error counts.
func (s *Stage) Must(err error) {
	if err == nil {
		return
	}
	if s.fault == nil {
		s.fault = err
	}
	runtime.Goexit()
}

// Fail ends the play: something is not as it should be.
func (s *Stage) Fail(format string, args ...any) { s.Must(fmt.Errorf(format, args...)) }
