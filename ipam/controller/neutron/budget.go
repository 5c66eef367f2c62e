package neutron

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/gophercloud/gophercloud/v2"
)

// How long a request that is made again waits: at first, and at most.
const (
	firstWait = 200 * time.Millisecond
	longWait  = 2 * time.Second
)

// errTimeout is why a call of a method ends that has taken all its time.
var errTimeout = errors.New("Neutron has not answered within the time that a call may take")

// budget is what one call of a method may spend. It belongs to one goroutine.
type budget struct {
	c       *Client
	retries int
	wait    time.Duration
}

// begin returns the budget of one call of a method, whose context ends with its timeout.
func (c *Client) begin(ctx context.Context) (context.Context, context.CancelFunc, *budget) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.cfg.Timeout, errTimeout)
	return ctx, cancel, &budget{c: c, retries: c.cfg.Retries, wait: firstWait}
}

// request makes one request within limit.
func (b *budget) request(ctx context.Context, limit time.Duration, ask func(context.Context, *gophercloud.ServiceClient) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	service, err := b.c.network(ctx)
	if err != nil {
		return err
	}
	return ask(ctx, service)
}

// repeat makes a request, which must be one that may be made twice, until it succeeds, fails
// for good, or the budget is spent. The error says what op was.
func (b *budget) repeat(ctx context.Context, op string, ask func(context.Context, *gophercloud.ServiceClient) error) error {
	for {
		err := b.request(ctx, b.c.cfg.CallTimeout, ask)
		if err == nil || !b.again(ctx, err) {
			return explain(op, err)
		}
	}
}

// again reports whether to go on after err, and has then waited.
func (b *budget) again(ctx context.Context, err error) bool {
	if ctx.Err() != nil || b.retries == 0 || reasonOf(explain("", err)) != Unavailable {
		return false
	}
	wait := max(b.wait, retryAfter(err))
	if until, ok := ctx.Deadline(); ok && time.Until(until) < wait {
		return false
	}
	b.retries--
	b.wait = min(2*b.wait, longWait)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// retryAfter returns how long the server wants to be left alone, or 0.
func retryAfter(err error) time.Duration {
	answer, ok := errors.AsType[gophercloud.ErrUnexpectedResponseCode](err)
	if !ok {
		return 0
	}
	seconds, err := strconv.Atoi(answer.ResponseHeader.Get("Retry-After"))
	if err != nil {
		return 0
	}
	return time.Duration(seconds) * time.Second
}
