package dranet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/tenure-ipam/tenure/ipam/agentapi"
	"github.com/tenure-ipam/tenure/ipam/node/agent"
	"github.com/tenure-ipam/tenure/ipam/node/sched"
	"github.com/tenure-ipam/tenure/ipam/poolspec"
	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// Devices gives addresses to devices. An [agent.Agent] does.
type Devices interface {
	HoldDevice(ctx context.Context, d agent.Device, conf *poolspec.Config) (*agentapi.Result, error)
	KnownDevice(ctx context.Context, claim protocol.UID, name string) (d agent.Device, ok bool, err error)
	ReleaseDevice(ctx context.Context, claim protocol.UID, name string) error
}

// Cluster is what is asked of the cluster. All methods may run at once.
type Cluster interface {
	// FindResourceClaim returns the ResourceClaim with that UID, which a pod of this node has, and
	// that pod, as a Device without a name. It may wait until ctx ends.
	FindResourceClaim(ctx context.Context, uid protocol.UID) (agent.Device, error)
	// Definition returns the configuration of a NetworkAttachmentDefinition; why is why a pod of
	// the namespace forNamespace may not use it, empty if it may.
	Definition(ctx context.Context, namespace, name, forNamespace string) (config, why string, err error)
}

// ErrNoDefinition says that there is no such definition.
var ErrNoDefinition = errors.New("there is no such NetworkAttachmentDefinition")

// answerWithin is how long a question may take. The driver waits for ten seconds.
const answerWithin = 8 * time.Second

// errLate is what an answer says that was not there within that time.
var errLate = fmt.Errorf("the agent was not done within %v: what it began goes on, for the kubelet's next try", answerWithin)

// maxBody bounds a request: a ResourceClaim's configuration is 10 KiB at most.
const maxBody = 1 << 20

// Server answers the driver.
type Server struct {
	Devices Devices
	Cluster Cluster
	Sched   sched.Scheduler
	Log     *slog.Logger
}

// Serve answers on ln until ctx ends, and returns when all that is under way has been answered.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	srv := &http.Server{Handler: s.handler(), ReadTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerWithin)
		defer cancel()
		if srv.Shutdown(within) != nil { // somebody has not been answered in time
			_ = srv.Close()
		}
	})
	if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		stop()
		return fmt.Errorf("serve DRANET: %w", err)
	}
	<-stopped
	return nil
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+PathHealth, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, Health{ProfileProvider: true})
	})
	mux.HandleFunc("POST "+PathProfile, s.serving(PathProfile))
	mux.HandleFunc("POST "+PathRelease, s.serving(PathRelease))
	return mux
}

// A refusal is an answer that is not 200.
type refusal struct {
	status int
	why    string
}

func (r *refusal) Error() string { return r.why }

func refuse(status int, format string, args ...any) error {
	return &refusal{status, fmt.Sprintf(format, args...)}
}

// Answer answers a request to one of the contract's paths in time: by a [NetworkConfig] where a
// profile is asked for.
func (s *Server) Answer(ctx context.Context, path string, req Request) (any, error) {
	ctx, cancel := s.Sched.WithTimeout(ctx, answerWithin, errLate)
	defer cancel()
	if err := req.check(); err != nil {
		return nil, err
	}
	if path == PathRelease {
		return s.release(ctx, req)
	}
	return s.profile(ctx, req)
}

// serving returns what reads a request to path, and writes the answer.
func (s *Server) serving(path string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var req Request
		err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&req)
		if err != nil {
			err = refuse(http.StatusBadRequest, "the request is no JSON as DRANET 1.4 sends it: %v", err)
		}
		var said any
		if err == nil {
			said, err = s.Answer(r.Context(), path, req)
		}
		if err != nil {
			status := statusOf(err)
			s.Log.WarnContext(r.Context(), "DRANET refused", "path", path, "resourceClaim", req.ClaimUID, "device", req.Device.Name, "status", status, "error", err)
			http.Error(w, err.Error(), status)
			return
		}
		answer(w, said)
	}
}

// answer writes an answer; whether the driver still listens, it knows best.
func answer(w http.ResponseWriter, said any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(said)
}

// statusOf returns the status that the contract has for an error.
func statusOf(err error) int {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r.status
	}
	if e, ok := errors.AsType[*agent.DeviceError](err); ok {
		switch e.Fault {
		case agent.DeviceInvalid:
			return http.StatusBadRequest
		case agent.DeviceUnknown:
			return http.StatusNotFound
		case agent.DeviceConflict:
			return http.StatusConflict
		case agent.DevicePasses:
		}
	}
	return http.StatusInternalServerError
}

// check refuses what names no device of a ResourceClaim.
func (r Request) check() error {
	switch {
	case r.ClaimUID == "":
		return refuse(http.StatusBadRequest, "claim_uid is missing: give the UID of the ResourceClaim")
	case r.Device.Name == "":
		return refuse(http.StatusBadRequest, "device.name is missing: give the name of the device in its ResourceSlice")
	case !isName(r.ClaimUID):
		return refuse(http.StatusBadRequest, "claim_uid %q cannot be a UID", r.ClaimUID)
	case !isName(r.Device.Name):
		return refuse(http.StatusBadRequest, "device.name %q cannot be the name of a device", r.Device.Name)
	}
	return nil
}

// isName reports whether s is one word of the characters that UIDs and devices' names have.
func isName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '.' || c == '_') {
			return false
		}
	}
	return len(s) <= 253
}

// release frees what a device has. What the profile says does not matter: it may be gone.
func (s *Server) release(ctx context.Context, req Request) (any, error) {
	return struct{}{}, s.Devices.ReleaseDevice(ctx, protocol.UID(req.ClaimUID), req.Device.Name)
}
