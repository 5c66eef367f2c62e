package agentapi

import (
	"encoding/json"
	"fmt"
	"net/netip"
)

// Version is the version of the messages that this program speaks. A server
// serves every version up to its own, so the agent of a node is upgraded before
// its plugins.
const Version = 1

// Verb says what a [Request] asks for.
type Verb string

// The verbs: those of CNI; Ping, which asks whether anybody serves; those of the
// meta-plugin, Facts, which asks what is known of a pod, Report, which tells what the pod was
// attached to, and Probe, which asks which of its addresses a stranger might have, and tells; and
// Selected, which waits for pods that select other networks than before.
const (
	Add    Verb = "ADD"
	Del    Verb = "DEL"
	Check  Verb = "CHECK"
	GC     Verb = "GC"
	Status Verb = "STATUS"
	Ping   Verb = "PING"
	Facts  Verb = "FACTS"
	Report Verb = "REPORT"
	Probe  Verb = "PROBE"

	Selected Verb = "SELECTED"
)

// valid reports whether v is one of the verbs.
func (v Verb) valid() bool {
	switch v {
	case Add, Del, Check, GC, Status, Ping, Facts, Report, Probe, Selected:
		return true
	default:
		return false
	}
}

// A Request is one call of the plugin, as the plugin got it.
type Request struct {
	// Version is set by [Conn.Call].
	Version int  `json:"v"`
	Verb    Verb `json:"verb"`

	// ContainerID, Netns, IfName and Args are CNI_CONTAINERID, CNI_NETNS,
	// CNI_IFNAME and CNI_ARGS; empty where the runtime gave none.
	ContainerID string `json:"containerID,omitempty"`
	Netns       string `json:"netns,omitempty"`
	IfName      string `json:"ifName,omitempty"`
	Args        string `json:"args,omitempty"`

	// NetnsID is the identity of the network namespace that Netns named when
	// the plugin looked: "device:inode". Empty means that it could not be
	// told, as for a DEL after the namespace has gone.
	NetnsID string `json:"netnsID,omitempty"`

	// Config is the network configuration from the plugin's stdin.
	Config json.RawMessage `json:"config,omitempty"`

	// Ask is what a Facts or a Selected asks and a Report tells, as package attach/facts has it, or
	// a [ProbeAsk].
	Ask json.RawMessage `json:"ask,omitempty"`

	// DeadlineMillis is how long the caller still waits, in milliseconds from
	// the sending. [Conn.Call] sets it from its context, and [Once] from its
	// timeout; 0 means that the server's own limit decides.
	DeadlineMillis int64 `json:"deadlineMillis,omitempty"`
}

// A Response answers one [Request]. Result is set for an ADD that succeeded, Facts
// for a Facts that did, Error for every failure; all are nil for the success of
// any other verb.
type Response struct {
	// Version is the server's.
	Version int     `json:"v"`
	Result  *Result `json:"result,omitempty"`
	Error   *Error  `json:"error,omitempty"`
	// Facts is what the agent knows, as package attach/facts has it, or the answer to a Probe.
	Facts json.RawMessage `json:"facts,omitempty"`
	// Warnings are for the runtime's log, whatever the outcome.
	Warnings []string `json:"warnings,omitempty"`

	// After, if not nil, is what the handler leaves until the answer is out, which the
	// server calls then: nothing that the caller has to wait for.
	After func() `json:"-"`
}

// A Result is what an ADD gives its interface.
type Result struct {
	IPs    []IP    `json:"ips"`
	Routes []Route `json:"routes,omitempty"`
	DNS    DNS     `json:"dns,omitzero"`
}

// An IP is one address and the gateway of its subnet, which is for information
// and may be the zero Addr.
type IP struct {
	Address netip.Prefix `json:"address"`
	Gateway netip.Addr   `json:"gateway,omitzero"`
}

// A Route is one route that the main plugin is to add. GW may be the zero Addr;
// the pointers are nil, and the numbers 0, where the configuration is silent.
type Route struct {
	Dst      netip.Prefix `json:"dst"`
	GW       netip.Addr   `json:"gw,omitzero"`
	MTU      int          `json:"mtu,omitempty"`
	AdvMSS   int          `json:"advmss,omitempty"`
	Priority int          `json:"priority,omitempty"`
	Table    *int         `json:"table,omitempty"`
	Scope    *int         `json:"scope,omitempty"`
}

// DNS is the resolver configuration of a result.
type DNS struct {
	Nameservers []string `json:"nameservers,omitempty"`
	Domain      string   `json:"domain,omitempty"`
	Search      []string `json:"search,omitempty"`
	Options     []string `json:"options,omitempty"`
}

// IsZero reports whether d says nothing.
func (d DNS) IsZero() bool {
	return d.Domain == "" && len(d.Nameservers)+len(d.Search)+len(d.Options) == 0
}

// Code is a CNI error code.
type Code uint

// The CNI error codes that Tenure answers.
const (
	CodeIncompatibleVersion Code = 1
	CodeUnsupportedField    Code = 2
	CodeInvalidEnvironment  Code = 4
	CodeIO                  Code = 5
	CodeDecoding            Code = 6
	CodeInvalidConfig       Code = 7
	CodeTryAgainLater       Code = 11
	CodeNotAvailable        Code = 50
	CodeInternal            Code = 999
)

// An Error is a failure as CNI tells it.
type Error struct {
	Code    Code   `json:"code"`
	Msg     string `json:"msg"`
	Details string `json:"details,omitempty"`
}

// Error returns the message and, where there are any, the details.
func (e *Error) Error() string {
	if e.Details == "" {
		return e.Msg
	}
	return e.Msg + ": " + e.Details
}

// Fail returns a Response that carries an error and nothing else.
func Fail(code Code, format string, args ...any) Response {
	return Response{Version: Version, Error: &Error{Code: code, Msg: fmt.Sprintf(format, args...)}}
}
