package main

import (
	"context"
	"fmt"
	"time"
)

// manyClaims are the numbers of claims with which the controller is looked at.
var manyClaims = []int{100, 10_000, 100_000}

// full is what was seen of a controller with some number of claims.
type full struct {
	claims int
	start  time.Duration // until it was ready
	rss    int64
	agent  int64 // memory of the node's agent
}

// controller measures memory and start of a controller that has many claims to look
// after.
func (b *bench) controller(ctx context.Context) error {
	if err := b.node.claimNetwork(ctx); err != nil {
		return err
	}
	var seen []full
	made := 0
	for _, count := range manyClaims {
		count = b.samples(count)
		if err := b.node.makeClaims(ctx, func(i int) string { return fmt.Sprintf("many-%d", made+i) }, count-made); err != nil {
			return err
		}
		made = count
		if _, err := b.node.allocated(ctx, count); err != nil {
			return err
		}
		x := full{claims: count}
		if err := b.node.controller.Stop(); err != nil {
			return err
		}
		began := time.Now()
		if err := b.node.controller.Start(ctx); err != nil {
			return err
		}
		x.start = time.Since(began)
		var err error
		if x.rss, err = settled(ctx, b.node.controller); err != nil {
			return err
		}
		if x.agent, err = b.node.agent.Memory("VmRSS"); err != nil {
			return err
		}
		seen = append(seen, x)
	}
	b.report.controller(seen)
	return nil
}
