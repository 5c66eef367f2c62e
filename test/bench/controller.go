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
func (b *bench) controller(ctx context.Context) {
	b.node.claimNetwork(ctx)
	var seen []full
	made := 0
	for _, count := range manyClaims {
		count = b.samples(count)
		b.node.makeClaims(ctx, func(i int) string { return fmt.Sprintf("many-%d", made+i) }, count-made)
		made = count
		b.node.allocated(ctx, count)
		x := full{claims: count}
		b.Must(b.node.controller.Stop())
		began := time.Now()
		b.Must(b.node.controller.Start(ctx))
		x.start = time.Since(began)
		x.rss = b.settled(ctx, b.node.controller)
		x.agent = b.memory(b.node.agent, "VmRSS")
		seen = append(seen, x)
	}
	b.report.controller(seen)
}
