package agent

import "golang.org/x/sync/errgroup"

// inParallel runs do for each item, at most n at once, and waits for all.
func inParallel[T any](n int, items []T, do func(T)) {
	var g errgroup.Group
	g.SetLimit(n)
	for _, item := range items {
		g.Go(func() error { do(item); return nil })
	}
	_ = g.Wait() // no task returns an error
}
