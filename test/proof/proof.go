// Package proof parts the tests: those that pass in make test, and those that need make proof,
// since they measure, load the machine, or wait long for what seldom happens.
package proof

import "testing"

// Only leaves a test to make proof. make test runs go test with -short, and skips it.
func Only(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("it measures, loads the machine or waits long: make proof runs it")
	}
}
