package neutron

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/gophercloud/gophercloud/v2"
)

// Reason is a word for what went wrong, as conditions and Events have it.
type Reason string

// The reasons that an [Error] may have.
const (
	SubnetExhausted Reason = "SubnetExhausted" // no address is left in the allocation pools
	AddressInUse    Reason = "AddressInUse"    // another port has the address
	AddressOutside  Reason = "AddressOutside"  // the subnet cannot have the address
	QuotaExceeded   Reason = "QuotaExceeded"   // the project may not have another port
	NotFound        Reason = "NotFound"        // the network, subnet or port is not there, or not visible
	NotOurs         Reason = "NotOurs"         // the port is not the claim's, and stays
	Changed         Reason = "Changed"         // the port is not as it was read
	Unauthorized    Reason = "Unauthorized"    // the credentials are not accepted
	Forbidden       Reason = "Forbidden"       // the credentials do not suffice
	Unavailable     Reason = "Unavailable"     // no answer, or 5xx or 429, after all retries
	Rejected        Reason = "Rejected"        // any other refusal
)

// An Error is what every method of [Client] fails with.
type Error struct {
	Reason Reason

	// Message says what failed, where, and what to do: one line for people.
	Message string

	// Holder is the port that has the address. It is set with AddressInUse alone, and only if
	// Neutron shows it: another project's port it does not.
	Holder *Holder

	err error
}

// A Holder is the port that has an address which was asked for.
type Holder struct{ PortID, DeviceID, DeviceOwner string }

// Error implements error.
func (e *Error) Error() string { return e.Message }

// Unwrap returns what Neutron or the network said.
func (e *Error) Unwrap() error { return e.err }

// reasonOf returns the reason of err, or "" if it is no [Error].
func reasonOf(err error) Reason {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Reason
	}
	return ""
}

// ReasonOf returns the reason of err, which a method of [Client] failed with, and the port that
// has an address, if that is why and it is known.
func ReasonOf(err error) (Reason, *Holder) {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Reason, e.Holder
	}
	return Rejected, nil
}

// kind is what an answer of Neutron means to us.
type kind struct {
	reason Reason
	advice string
}

// kinds are the meanings of errors by Neutron's names of them.
var kinds = map[string]kind{
	"IpAddressGenerationFailure":          {SubnetExhausted, "delete ports, or give the subnet larger allocation pools"},
	"IpAddressGenerationFailureForSubnet": {SubnetExhausted, "delete ports, or give the subnet larger allocation pools"},
	"IpAddressAlreadyAllocated":           {AddressInUse, "ask for another address, or delete the port that has it"},
	"IpAddressInUse":                      {AddressInUse, "ask for another address, or delete the port that has it"},
	"InvalidIpForSubnet":                  {AddressOutside, "ask for an address of the subnet"},
	"InvalidIpForNetwork":                 {AddressOutside, "ask for an address of one of the network's subnets"},
	"OverQuota":                           {QuotaExceeded, "delete ports, or have the project's quota of ports raised"},
}

// statuses are the meanings of errors by HTTP status, where the name says nothing to us.
var statuses = map[int]kind{
	http.StatusNotFound: {NotFound, "name one that exists and that the project sees"},
	// Deletions with a revision are looked at before this is.
	http.StatusPreconditionFailed: {Changed, "it is read again"},
	http.StatusUnauthorized:       {Unauthorized, "renew the credentials in clouds.yaml"},
	http.StatusForbidden:          {Forbidden, "give the credentials a role that may do this, or share the network with their project"},
}

// explain returns err as an [Error]: op is what was tried, such as "make a port on network X".
func explain(op string, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if again, ok := errors.AsType[*gophercloud.ErrUnableToReauthenticate](err); ok {
		// That the token had ended is what brought this about, not what is wrong.
		return explain(op+": renew the token", again.ErrReauth)
	}
	answer, ok := errors.AsType[gophercloud.ErrUnexpectedResponseCode](err)
	switch {
	case ok && passes(err):
		return &Error{Reason: Unavailable, err: err,
			Message: fmt.Sprintf("%s: OpenStack answers %d: look at its log if this goes on", op, answer.Actual)}
	case ok:
		name, said := neutronError(answer.Body)
		k, known := kinds[name]
		if !known {
			k, known = statuses[answer.Actual]
		}
		if !known {
			k = kind{Rejected, "change what is asked for"}
		}
		return &Error{Reason: k.reason, err: err, Message: fmt.Sprintf("%s: %s: %s", op, said, k.advice)}
	case passes(err):
		return &Error{Reason: Unavailable, err: err,
			Message: fmt.Sprintf("%s: no answer%s: see whether the endpoint is right and reachable", op, whyNone(err))}
	}
	return &Error{Reason: Rejected, err: err, Message: fmt.Sprintf("%s: %v: check clouds.yaml and the version of Neutron", op, err)}
}

// whyNone says from where no answer came, and why, without the query of the request, which may be
// long.
func whyNone(err error) string {
	request, ok := errors.AsType[*url.Error](err)
	if !ok {
		return ": " + err.Error()
	}
	from, _, _ := strings.Cut(request.URL, "?")
	return fmt.Sprintf(" from %s: %v", from, request.Err)
}

// neutronError returns the name and the words of an error in Neutron's form, and of others
// their text.
func neutronError(body []byte) (name, said string) {
	var form struct {
		NeutronError struct{ Type, Message string }
	}
	if err := json.Unmarshal(body, &form); err == nil && form.NeutronError.Message != "" {
		return form.NeutronError.Type, strings.TrimRight(form.NeutronError.Message, ". ")
	}
	const long = 200
	text := strings.Join(strings.Fields(string(body)), " ")
	if len(text) > long {
		text = text[:long] + "…"
	}
	return "", text
}

// passes reports whether what err tells of may pass by itself: the server is not there, is
// overwhelmed, or its answer was lost.
func passes(err error) bool {
	if answer, ok := errors.AsType[gophercloud.ErrUnexpectedResponseCode](err); ok {
		return answer.Actual >= http.StatusInternalServerError || answer.Actual == http.StatusTooManyRequests
	}
	_, network := errors.AsType[net.Error](err)
	return network || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}
