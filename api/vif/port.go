package vif

import (
	"encoding/json"
	"fmt"
)

// AnnotationPort is on a claim whose pool has its addresses from a network service: a [Port] as
// JSON. The controller writes it before the claim has addresses.
const AnnotationPort = "tenure.dev/port"

// A Port is what a network service has made for a claim. What stands here is for people, and tells
// the hardware address; who deletes a port asks the service whose it is.
type Port struct {
	ID      string `json:"id"`
	MAC     string `json:"mac"`
	Network string `json:"network"`
	// Subnets are the IDs of the subnets that the port's addresses are of.
	Subnets []string `json:"subnets"`
}

// ParsePort reads a claim's annotation. The empty text is no port.
func ParsePort(text string) (p Port, err error) {
	if text == "" {
		return p, nil
	}
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return Port{}, fmt.Errorf("annotation %s: %w", AnnotationPort, err)
	}
	return p, nil
}

// String returns p as the annotation has it: the same for the same port.
func (p Port) String() string {
	text, err := json.Marshal(p)
	if err != nil { // strings
		panic("vif: " + err.Error())
	}
	return string(text)
}
