package main

import (
	"context"
	"errors"
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
func (b *bench) reboot(ctx context.Context) error {
	all, err := b.candidates()
	if err != nil {
		return err
	}
	got := measured{}
	for round := range rebootRounds {
		boxes, err := b.sandboxes(ctx, max(10, b.samples(rebootPods)))
		if err != nil {
			return err
		}
		attachments := b.interfaces(boxes)
		for j := range all {
			c := all[(round+j)%len(all)]
			if c.name != viaAgent && c.name != static {
				continue
			}
			samples, took, err := burst(ctx, c.call, "ADD", attachments, len(attachments))
			if err != nil {
				return err
			}
			got.add(c.name, "ADD", round, samples...)
			got.took(c.name, "ADD", round, took)
			if c.name == viaAgent && round == rebootRounds-1 {
				if err := b.restarted(ctx, len(attachments)); err != nil {
					return err
				}
			}
			if _, _, err := burst(ctx, c.call, "DEL", attachments, burstWorkers); err != nil {
				return err
			}
		}
	}
	b.report.reboot(got)
	return nil
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
func (b *bench) restarted(ctx context.Context, attachments int) error {
	whole, err := b.node.agent.Memory("VmRSS")
	if err != nil {
		return err
	}
	again := func() (time.Duration, error) {
		if err := b.node.agent.Stop(); err != nil {
			return 0, err
		}
		began := time.Now()
		err := b.node.agent.Start(ctx)
		return time.Since(began), err
	}
	with, err := again()
	if err != nil {
		return err
	}
	if err := b.node.PauseAPIServer(); err != nil {
		return err
	}
	without, err := again()
	if err := errors.Join(err, b.node.ResumeAPIServer()); err != nil {
		return err
	}
	b.report.restarted(attachments, whole, with, without)
	return nil
}
