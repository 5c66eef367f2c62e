package plugin

import (
	"context"
	"fmt"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/attach/journal"
	"github.com/tenure-ipam/tenure/ipam/wire"
)

// unsentAge is how old a report must be that an earlier call could not send:
// younger ones may be on their way.
const unsentAge = 5 * time.Second

// unsentLimit is how many of those a call sends at most.
const unsentLimit = 16

// ask asks the agent about the pod.
func (c *call) ask(ctx context.Context, q facts.Question) (facts.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	resp, err := c.reach(ctx, wire.Request{Verb: wire.Facts, Ask: q.AppendTo(nil)})
	if err != nil {
		return facts.Answer{}, types.NewError(types.ErrTryAgainLater, err.Error(), "is the node's agent (tenured) running?")
	}
	for _, w := range resp.Warnings {
		c.warn("%s", w)
	}
	if resp.Error != nil {
		return facts.Answer{}, types.NewError(uint(resp.Error.Code), resp.Error.Msg, resp.Error.Details)
	}
	if len(resp.Facts) == 0 {
		return facts.Answer{}, types.NewError(types.ErrDecodingFailure, "the agent's answer has no facts", "")
	}
	a, err := facts.ParseAnswer(resp.Facts)
	if err != nil {
		return a, types.NewError(types.ErrDecodingFailure, "the agent's answer: "+err.Error(), "")
	}
	return a, nil
}

// reach calls the agent over the connection that an earlier call has left, or a new
// one: the agent hangs up where the delegates took long. What it asks may so be
// asked twice, which changes nothing.
func (c *call) reach(ctx context.Context, req wire.Request) (wire.Response, error) {
	if c.conn != nil {
		resp, err := c.conn.Call(ctx, req)
		if err == nil || ctx.Err() != nil {
			return resp, err
		}
		c.hangUp()
	}
	conn, err := wire.Dial(ctx, c.socket)
	if err != nil {
		return wire.Response{}, err
	}
	c.conn = conn
	return conn.Call(ctx, req)
}

// hangUp closes the connection to the agent, if there is one.
func (c *call) hangUp() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

// news is a report for the agent. The key is that of the journal that has it, or
// the zero Key.
type news struct {
	key    journal.Key
	report facts.Report
}

// later has the agent told when the answer is out. A report that says nothing is
// none.
func (c *call) later(k journal.Key, r facts.Report) {
	if len(r.Status) > 0 || len(r.Warnings) > 0 {
		c.news = append(c.news, news{k, r})
	}
}

// tell sends what the agent is to be told, and what earlier calls could not send.
// What it does not accept in time stays in the journal.
func (c *call) tell(ctx context.Context) {
	if c.socket == "" {
		return
	}
	unsent, err := c.state.Unsent(c.Now().Add(-unsentAge), unsentLimit)
	if err != nil {
		c.warn("reports that were not sent: %v", err)
	}
	for _, u := range unsent {
		c.news = append(c.news, news{u.Key, u.Report})
	}
	if len(c.news) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, reportPatience)
	defer cancel()
	if err := c.send(ctx); err != nil {
		c.warn("the agent was not told of the attachments; a later call tells it: %v", err)
	}
}

func (c *call) send(ctx context.Context) error {
	for _, n := range c.news {
		resp, err := c.reach(ctx, wire.Request{Verb: wire.Report, Ask: n.report.AppendTo(nil)})
		if err != nil {
			return err
		}
		if resp.Error != nil {
			return fmt.Errorf("pod %s/%s: %w", n.report.Pod.Namespace, n.report.Pod.Name, resp.Error)
		}
		if n.key != (journal.Key{}) {
			if err := c.state.Sent(n.key); err != nil {
				return err
			}
		}
	}
	return nil
}
