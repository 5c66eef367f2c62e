package who

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	authorization "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/tenure-ipam/tenure/cmd/kubectl-tenure/session"
)

const (
	namespace = "tenure-system"
	agent     = "tenured" // its pods' label, its container and its program
)

// mayExec returns an error if the user may not run programs in the agents' pods.
func mayExec(ctx context.Context, s *session.Session, logs string) error {
	review := authorization.SelfSubjectAccessReview{Spec: authorization.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorization.ResourceAttributes{Namespace: namespace, Verb: "create", Resource: "pods", Subresource: "exec"},
	}}
	if err := s.Client.Create(ctx, &review); err != nil {
		return fmt.Errorf("ask whether you may run programs in the agents' pods: %w", err)
	}
	if review.Status.Allowed {
		return nil
	}
	return fmt.Errorf("you may not ask the agents: it takes the right to create pods/exec in namespace %s, which is an administrator's, "+
		"for it reaches the agents' credentials. The same is in the agents' logs:\n\n    %s\n\nor wherever your cluster keeps logs", namespace, logs)
}

// executor runs programs in the agents' pods.
type executor struct {
	config *rest.Config
	pods   rest.Interface
	within time.Duration
}

func newExecutor(s *session.Session, within time.Duration) (executor, error) {
	rc := rest.CopyConfig(s.Rest)
	rc.APIPath, rc.GroupVersion = "/api", &corev1.SchemeGroupVersion
	rc.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	pods, err := rest.RESTClientFor(rc)
	return executor{rc, pods, within}, err
}

// errTooLate is why a call ends that has not been answered in time.
var errTooLate = errors.New("it has not answered in time")

// errTooLong is why a call ends that has been answered with more than is read.
var errTooLong = fmt.Errorf("its answer has more than %d MiB: ask for a shorter time, by --at or a later --since", mostRead>>20)

// mostRead bounds what is read of an answer.
const mostRead = 4 << 20

// A bounded keeps what is written to it. Where that is more than mostRead it calls full, and keeps
// nothing else.
type bounded struct {
	text bytes.Buffer
	full func()
}

// Write implements [io.Writer].
func (b *bounded) Write(p []byte) (int, error) {
	if b.text.Len()+len(p) > mostRead {
		b.full()
		return len(p), nil
	}
	return b.text.Write(p)
}

// run returns what a command prints in the agent's container of a pod.
func (x executor) run(ctx context.Context, pod string, command []string) (*bytes.Buffer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, x.within, errTooLate)
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	full := func() { end(errTooLong) }
	url := x.pods.Post().Resource("pods").Namespace(namespace).Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: agent, Command: command, Stdout: true, Stderr: true}, scheme.ParameterCodec).URL()
	// As kubectl does it: by WebSocket, or where something on the way does not let that pass, SPDY.
	webSocket, err := remotecommand.NewWebSocketExecutor(x.config, "GET", url.String())
	if err != nil {
		return nil, err
	}
	spdy, err := remotecommand.NewSPDYExecutor(x.config, "POST", url)
	if err != nil {
		return nil, err
	}
	exec, err := remotecommand.NewFallbackExecutor(webSocket, spdy, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	if err != nil {
		return nil, err
	}
	out, said := bounded{full: full}, bounded{full: full}
	err = exec.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: &said})
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, errors.New(cmp.Or(lastLine(said.text.String()), err.Error()))
	}
	return &out.text, nil
}

// lastLine returns the last line of what a program says that fails.
func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}
