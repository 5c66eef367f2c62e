package plugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/attach/journal"
	"github.com/tenure-ipam/tenure/ipam/agentapi"
)

// unsentAge is how old a report must be that an earlier call could not send:
// younger ones may be on their way.
const unsentAge = 5 * time.Second

// unsentLimit is how many of those a call sends at most.
const unsentLimit = 16

// question returns the request that asks the agent about the pod.
func question(q facts.Question) agentapi.Request {
	return agentapi.Request{Verb: agentapi.Facts, Ask: q.AppendTo(nil)}
}

// ask asks the agent about the pod.
func (c *call) ask(ctx context.Context, q agentapi.Request) (facts.Answer, error) {
	resp, err := c.reach(ctx, time.Now().Add(askTimeout), q)
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

// announce sends a request ahead of the reach that takes its answer: the agent works on
// it while this process does something else. If it cannot be sent, reach says why.
func (c *call) announce(ctx context.Context, timeout time.Duration, req agentapi.Request) {
	if c.conn == nil {
		conn, err := agentapi.Connect(ctx, timeout, c.socket)
		if err != nil {
			return
		}
		c.conn = conn
	}
	if c.conn.Send(ctx, timeout, req) != nil {
		c.hangUp()
		return
	}
	c.sent = &req
}

// reach calls the agent until a deadline, over the connection that an earlier call has
// left, or a new one: the agent hangs up where the delegates took long. What it asks
// may so be asked twice, which changes nothing. What was announced is not sent again, and
// waited for as long as announce was told. After an error no connection is left: an
// answer that comes late would be taken for that to the next request.
func (c *call) reach(ctx context.Context, deadline time.Time, req agentapi.Request) (agentapi.Response, error) {
	if c.sent != nil && (c.sent.Verb != req.Verb || !bytes.Equal(c.sent.Ask, req.Ask)) {
		c.hangUp() // the answer to something else would come
	}
	if c.conn != nil {
		var resp agentapi.Response
		var err error
		if c.sent != nil {
			c.sent = nil
			resp, err = c.conn.Receive(ctx)
		} else {
			resp, err = c.conn.Call(ctx, time.Until(deadline), req)
		}
		if err == nil {
			return resp, nil
		}
		c.hangUp()
		if ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) || time.Until(deadline) <= 0 {
			return agentapi.Response{}, err
		}
	}
	conn, err := agentapi.Connect(ctx, time.Until(deadline), c.socket)
	if err != nil {
		return agentapi.Response{}, err
	}
	c.conn = conn
	resp, err := conn.Call(ctx, time.Until(deadline), req)
	if err != nil {
		c.hangUp()
	}
	return resp, err
}

// hangUp closes the connection to the agent, if there is one.
func (c *call) hangUp() {
	if c.conn != nil {
		c.conn.Close()
		c.conn, c.sent = nil, nil
	}
}

// news is a report for the agent. The key is that of the journal that has it, or
// the zero Key.
type news struct {
	key    journal.Key
	report facts.Report
}

func (n news) request() agentapi.Request {
	return agentapi.Request{Verb: agentapi.Report, Ask: n.report.AppendTo(nil)}
}

// queueNews adds a report to what the agent is told after the runtime has its answer. A report
// that says nothing is left out.
func (c *call) queueNews(k journal.Key, r facts.Report) {
	if len(r.Status) > 0 || len(r.Warnings) > 0 {
		c.news = append(c.news, news{k, r})
	}
}

// announceNews sends ahead what the agent is to be told first, if there is anything.
func (c *call) announceNews(ctx context.Context) {
	if len(c.news) > 0 {
		c.announce(ctx, reportTimeout, c.news[0].request())
	}
}

// settleNews makes sure that the call's own report is not lost if this process ends once the
// runtime has its answer. Either the agent has the report already, because it was announced. Or a
// mark makes a later call send it, if tell does not. After an error there is no report.
func (c *call) settleNews(ctx context.Context) error {
	if len(c.news) == 0 {
		return nil
	}
	if c.sent != nil {
		c.sent = nil
		resp, err := c.conn.Receive(ctx)
		if err == nil && resp.Error == nil {
			c.news = c.news[1:]
			return nil
		}
		if err != nil {
			c.hangUp()
		}
	}
	err := c.state.MarkUnsent(c.news[0].key)
	if err != nil {
		c.news = c.news[1:]
	}
	return err
}

// tell sends what the agent is to be told, and what earlier calls could not send.
// What it does not accept in time stays in the journal.
func (c *call) tell(ctx context.Context) {
	if c.socket == "" {
		return
	}
	if c.sent == nil {
		c.announceNews(ctx)
	}
	c.search()
	if len(c.news) == 0 {
		return
	}
	if err := c.send(ctx, time.Now().Add(reportTimeout)); err != nil {
		c.warn("the agent was not told of the attachments; a later call tells it: %v", err)
	}
}

// search adds to the news what earlier calls could not send, once.
func (c *call) search() {
	if c.searched {
		return
	}
	c.searched = true
	unsent, err := c.state.Unsent(c.Now().Add(-unsentAge), unsentLimit)
	if err != nil {
		c.warn("reports that were not sent: %v", err)
	}
	for _, u := range unsent {
		c.news = append(c.news, news{u.Key, u.Report})
	}
}

// send sends the news until a deadline. It goes on past a report that cannot be accepted
// by itself.
func (c *call) send(ctx context.Context, deadline time.Time) error {
	var errs []error
	for _, n := range c.news {
		resp, err := c.reach(ctx, deadline, n.request())
		if _, own := errors.AsType[*agentapi.FrameError](err); err != nil && !own {
			return errors.Join(append(errs, err)...)
		}
		if err == nil && resp.Error != nil {
			err = resp.Error
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("pod %s/%s: %w", n.report.Pod.Namespace, n.report.Pod.Name, err))
			continue
		}
		if n.key != (journal.Key{}) {
			errs = append(errs, c.state.Sent(n.key))
		}
	}
	return errors.Join(errs...)
}
