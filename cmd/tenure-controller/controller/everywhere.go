package controller

import "context"

// everywhere is work that every controller does, leading or not.
type everywhere func(context.Context) error

func (e everywhere) Start(ctx context.Context) error { return e(ctx) }

// NeedLeaderElection implements [manager.LeaderElectionRunnable].
func (e everywhere) NeedLeaderElection() bool { return false }
