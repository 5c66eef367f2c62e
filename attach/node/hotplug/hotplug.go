// Package hotplug changes the networks of running pods on one node, as their annotation says. It is
// a service of its own beside the agent, with the rights on the host that plugins need, and without
// any in the cluster: the agent tells it over the node socket which pods select other networks than
// before, answers what is to be known of them, and takes what came of it.
package hotplug

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/attach/journal"
	"github.com/tenure-ipam/tenure/attach/plan"
	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/pause"
)

// A Service changes the networks of the node's running pods.
type Service struct {
	// ConfDir is the runtime's directory of CNI configurations. That of tenure-attach says where
	// the agent's socket is.
	ConfDir string
	// Change brings the attachment of a journal in line with what its pod selects now. again says
	// that a later call may do what this one could not.
	Change func(ctx context.Context, conf *plan.Config, k journal.Key) (again bool, err error)
	Now    func() time.Time
	Log    *slog.Logger
}

const (
	// askTimeout is for the agent to answer, which waits for half of it where there is nothing to
	// say.
	askTimeout = time.Minute
	// gather is how long further pods are waited for: a burst of new ones is looked at once.
	gather = 500 * time.Millisecond
	// idle is how often it is looked whether a pod is due.
	idle = time.Second
	// parallel is how many pods are changed at once.
	parallel = 4
)

// Run serves until ctx ends. What has begun by then is ended first.
func (s *Service) Run(ctx context.Context) error {
	told := make(chan []facts.PodRef)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { s.listen(ctx, told); return nil })
	g.Go(func() error { s.work(ctx, told); return nil })
	return g.Wait()
}

// listen asks the agent again and again which pods select other networks.
func (s *Service) listen(ctx context.Context, told chan<- []facts.PodRef) {
	var since facts.Since
	for ctx.Err() == nil {
		answer, err := s.ask(ctx, since)
		if err != nil {
			nap := time.Second // it starts anew
			if !errors.Is(err, agentapi.ErrNoAgent) && ctx.Err() == nil {
				s.Log.WarnContext(ctx, "it is not known which pods select other networks", "error", err)
				nap = firstPause
			}
			pause.For(ctx, nap)
			continue
		}
		since = facts.Since{Of: answer.Of, Revision: answer.Revision}
		if len(answer.Pods) == 0 {
			continue
		}
		select {
		case told <- answer.Pods:
		case <-ctx.Done():
		}
		pause.For(ctx, gather)
	}
}

func (s *Service) ask(ctx context.Context, since facts.Since) (answer facts.Selected, err error) {
	text, err := json.Marshal(since)
	if err != nil {
		return answer, err
	}
	conf, err := Installed(s.ConfDir)
	if err != nil {
		return answer, err
	}
	resp, err := agentapi.Once(ctx, askTimeout, conf.Socket, agentapi.Request{Verb: agentapi.Selected, Ask: text})
	if err != nil {
		return answer, err
	}
	if resp.Error != nil {
		return answer, resp.Error
	}
	return answer, json.Unmarshal(resp.Facts, &answer)
}

// work changes the pods that are due, each by itself: one whose plugins take long keeps no other
// waiting. It returns when all that has begun has ended.
func (s *Service) work(ctx context.Context, told <-chan []facts.PodRef) {
	q, turns, ended := queue{}, make(chan struct{}, parallel), make(chan outcome)
	for running := 0; running > 0 || ctx.Err() == nil; {
		select {
		case pods := <-told:
			q.add(s.Now(), pods)
		case o := <-ended:
			running--
			q.tried(s.Now(), o.pod, o.again)
		case <-time.After(idle):
		}
		if pods := q.due(s.Now()); len(pods) > 0 && ctx.Err() == nil {
			running += len(pods)
			s.begin(ctx, pods, turns, ended)
		}
	}
}

// An outcome is what came of a try.
type outcome struct {
	pod   facts.PodRef
	again bool
}

// begin has pods changed, as many at once as turns has room for, and ended told of each. All
// journals are read once for all of them.
func (s *Service) begin(ctx context.Context, pods []facts.PodRef, turns chan struct{}, ended chan<- outcome) {
	conf, err := Installed(s.ConfDir)
	var entries []*journal.Entry
	if err == nil {
		entries, _, err = journal.Dir{Path: conf.StateDir}.List(s.Now()) // its DEL tells of one that is damaged
	}
	if err != nil {
		s.Log.WarnContext(ctx, "running pods are not changed", "error", err)
	}
	for _, pod := range pods {
		go func() {
			k, ok, begun := attachmentOf(pod, entries)
			again := err != nil || begun
			if ok { // else it is yet to be attached, or others have attached it
				select {
				case turns <- struct{}{}:
					again = s.change(ctx, conf, pod, k) || again
					<-turns
				case <-ctx.Done():
				}
			}
			ended <- outcome{pod, again}
		}()
	}
}

// change changes a pod, and reports whether it is to be tried again.
func (s *Service) change(ctx context.Context, conf *plan.Config, pod facts.PodRef, k journal.Key) bool {
	again, err := s.Change(ctx, conf, k)
	if err != nil {
		s.Log.WarnContext(ctx, "pod not changed as its annotation says", "namespace", pod.Namespace, "pod", pod.Name, "again", again, "error", err)
	}
	return again
}

// attachmentOf returns the journal of the pod's last sandbox. An ADD that has begun may have read
// what the pod selected before.
func attachmentOf(pod facts.PodRef, entries []*journal.Entry) (k journal.Key, ok, begun bool) {
	var last *journal.Entry
	for _, e := range entries {
		of := e.Plan.Pod
		switch {
		case of.Namespace != pod.Namespace || of.Name != pod.Name || of.UID != "" && of.UID != pod.UID:
		case !e.Answered || e.Report == nil:
			begun = true
		case last == nil || last.Report.Made.Before(e.Report.Made, e.Boot):
			last = e
		}
	}
	if last == nil {
		return k, false, begun
	}
	return last.Key, true, begun
}

// Installed reads the configuration of tenure-attach that is installed for the runtime in dir.
func Installed(dir string) (*plan.Config, error) {
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("the runtime's configurations: %w", err)
	}
	for _, e := range names { // in the order in which a runtime looks
		if !slices.Contains(plan.RuntimeExtensions, filepath.Ext(e.Name())) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("the runtime's configurations: %w", err)
		}
		if !strings.Contains(string(text), plan.PluginType) {
			continue
		}
		conf, err := plan.ParseInstalled(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return conf, nil
	}
	return nil, fmt.Errorf("no configuration in %s is of %s: is it installed (Helm: attach.enabled), and is this the runtime's directory (Helm: directories.cniConf)?", dir, plan.PluginType)
}
