package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Sizes of the measurements of whole processes.
const (
	oneRounds     = 6
	onePerRound   = 60
	burstRounds   = 6
	burstSize     = 320
	burstWorkers  = 16
	warmUpPerKind = 10
)

// verbs are what is measured, in the order in which a sandbox meets them.
var verbs = []string{"ADD", "DEL"}

// sandboxes returns count sandboxes of as many pods. Runtimes name each anew, and
// so does every call of this.
func (b *bench) sandboxes(ctx context.Context, count int) []sandboxOf {
	pods := b.node.podsUpTo(ctx, count)
	b.generation++
	out := make([]sandboxOf, count)
	for i := range out {
		out[i] = sandboxOf{id: fmt.Sprintf("%032x%032x", b.generation, i), pod: pods[i], netns: b.node.netns.Path()}
	}
	return out
}

// one measures one ADD and its DEL after the other. The candidates take turns, so
// that what else this machine does meets all of them alike.
func (b *bench) one(ctx context.Context) {
	all := b.candidates()
	got := measured{}
	perRound := max(10, b.samples(onePerRound))
	for round := range oneRounds + 1 {
		count := perRound
		if round == 0 {
			count = warmUpPerKind
		}
		boxes := b.sandboxes(ctx, count)
		for i, box := range boxes {
			for j := range all {
				c := all[(i+j)%len(all)]
				for _, verb := range verbs {
					b.Must(context.Cause(ctx))
					s, err := c.call(verb, box)
					b.Must(err)
					if round > 0 {
						got.add(c.name, verb, round-1, s)
					}
				}
			}
		}
	}
	b.report.one(got)
}

// sixteen measures bursts: a fixed number of ADDs by 16 workers, then their DELs.
func (b *bench) sixteen(ctx context.Context) {
	all := b.candidates()
	got := measured{}
	for round := range burstRounds {
		boxes := b.sandboxes(ctx, max(4*burstWorkers, b.samples(burstSize)))
		for j := range all {
			c := all[(round+j)%len(all)]
			for _, verb := range verbs {
				samples, took, err := burst(ctx, c.call, verb, boxes, burstWorkers)
				b.Must(err)
				got.add(c.name, verb, round, samples...)
				got.took(c.name, verb, round, took)
			}
		}
	}
	b.report.sixteen(got)
}

// burst makes one call for each sandbox, so many at once, and returns what each
// call cost and how long all took.
func burst(ctx context.Context, call func(verb string, s sandboxOf) (sample, error), verb string, boxes []sandboxOf, workers int) ([]sample, time.Duration, error) {
	samples := make([]sample, len(boxes))
	errs := make([]error, workers)
	var next atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for w := range workers {
		wg.Go(func() {
			for errs[w] == nil && ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(boxes) {
					return
				}
				samples[i], errs[w] = call(verb, boxes[i])
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	for _, err := range errs {
		if err != nil {
			return nil, 0, err
		}
	}
	return samples, took, context.Cause(ctx)
}

// measured is what was measured of the candidates, by candidate and verb.
type measured map[name]map[string]*series

// series are the samples of one candidate's verb.
type series struct {
	rounds [][]sample
	took   []time.Duration // of bursts: how long each round took
}

func (m measured) of(n name, verb string) *series {
	if m[n] == nil {
		m[n] = map[string]*series{}
	}
	if m[n][verb] == nil {
		m[n][verb] = &series{}
	}
	return m[n][verb]
}

func (m measured) add(n name, verb string, round int, s ...sample) {
	x := m.of(n, verb)
	for len(x.rounds) <= round {
		x.rounds = append(x.rounds, nil)
	}
	x.rounds[round] = append(x.rounds[round], s...)
}

func (m measured) took(n name, verb string, round int, d time.Duration) {
	x := m.of(n, verb)
	for len(x.took) <= round {
		x.took = append(x.took, 0)
	}
	x.took[round] = d
}

// wall returns for each round the time, in milliseconds, that p per cent of the
// calls did not exceed.
func (x *series) wall(p int) []float64 {
	return x.each(func(s sample) float64 { return millis(s.wall) }, p)
}

// cpu returns for each round the median processor time of a call, in milliseconds.
func (x *series) cpu() []float64 {
	return x.each(func(s sample) float64 { return millis(s.cpu) }, 50)
}

// pooled returns the same as wall, of all rounds together: a round of few calls has
// no tail to speak of.
func (x *series) pooled(p int) []float64 {
	all := series{rounds: [][]sample{slices.Concat(x.rounds...)}}
	return all.wall(p)
}

func (x *series) each(of func(sample) float64, p int) []float64 {
	out := make([]float64, len(x.rounds))
	for i, round := range x.rounds {
		v := make([]float64, len(round))
		for j, s := range round {
			v[j] = of(s)
		}
		out[i] = percentile(v, p)
	}
	return out
}

// rate returns for each round the calls a second.
func (x *series) rate() []float64 {
	out := make([]float64, len(x.rounds))
	for i, round := range x.rounds {
		out[i] = float64(len(round)) / x.took[i].Seconds()
	}
	return out
}
