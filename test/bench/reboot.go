package main

import (
	"context"
	"fmt"
	"time"
)

// Sizes of the measurement of a node that starts all its pods at once.
const (
	rebootRounds = 3
	rebootPods   = 250 // with four interfaces each
)

// reboot measures a node's thousand attachments at once, as after a reboot: as many
// processes are started, by as many workers. Then it looks at the agent that has them:
// its memory, and how long it takes to be ready when it is started again.
func (b *bench) reboot(ctx context.Context) {
	all := b.candidates()
	got := measured{}
	for round := range rebootRounds {
		boxes := b.sandboxes(ctx, max(10, b.samples(rebootPods)))
		attachments := b.interfaces(boxes)
		for j := range all {
			c := all[(round+j)%len(all)]
			if c.name != viaAgent && c.name != static {
				continue
			}
			samples, took, err := burst(ctx, c.call, "ADD", attachments, len(attachments))
			b.Must(err)
			got.add(c.name, "ADD", round, samples...)
			got.took(c.name, "ADD", round, took)
			if c.name == viaAgent && round == rebootRounds-1 {
				b.restarted(ctx, len(attachments))
			}
			_, _, err = burst(ctx, c.call, "DEL", attachments, burstWorkers)
			b.Must(err)
		}
	}
	b.report.reboot(got)
}

// interfaces returns every interface of every sandbox.
func (b *bench) interfaces(boxes []sandboxOf) []sandboxOf {
	var out []sandboxOf
	for _, box := range boxes {
		for i := range interfacesPerPod {
			box.ifName = fmt.Sprintf("net%d", i+1)
			out = append(out, box)
		}
	}
	return out
}

// restarted reports the memory of an agent with so many attachments, and how long it
// takes to be ready, with the API server there and without.
func (b *bench) restarted(ctx context.Context, attachments int) {
	whole := b.memory(b.node.agent, "VmRSS")
	again := func() time.Duration {
		b.Must(b.node.agent.Stop())
		began := time.Now()
		b.Must(b.node.agent.Start(ctx))
		return time.Since(began)
	}
	with := again()
	b.Must(b.node.PauseAPIServer())
	defer func() { b.Must(b.node.ResumeAPIServer()) }()
	b.report.restarted(attachments, whole, with, again())
}
