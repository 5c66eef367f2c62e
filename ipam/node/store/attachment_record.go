package store

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// fields passes everything of a but its key through c.
func (a *Attachment) fields(c *codec) {
	text(c, &a.Pod.Namespace)
	text(c, &a.Pod.Name)
	text(c, &a.Pod.UID)
	text(c, &a.Pod.Owner.Kind)
	text(c, &a.Pod.Owner.Name)
	text(c, &a.Pod.Owner.UID)
	text(c, &a.Netns)
	text(c, &a.NetnsID)
	text(c, &a.Boot)
	c.uint(&a.Generation)
	c.time(&a.Created)
	n := c.count(len(a.Addresses))
	if c.reading && n > 0 {
		a.Addresses = make([]Address, n)
	}
	for i := range a.Addresses {
		a.Addresses[i].fields(c)
	}
	if c.flag(a.Claim != nil) {
		if c.reading {
			a.Claim = new(protocol.ClaimRef)
		}
		text(c, &a.Claim.Namespace)
		text(c, &a.Claim.Name)
		text(c, &a.Claim.UID)
	}
	text(c, &a.Use)
}

func (x *Address) fields(c *codec) {
	bits := int64(x.Bits)
	c.addr(&x.Addr)
	c.int(&bits)
	c.addr(&x.Gateway)
	text(c, &x.Pool)
	text(c, &x.Lease)
	x.Bits = int(bits)
}

func (a *Attachment) encode() []byte {
	c := codec{buf: make([]byte, 0, 512)}
	a.fields(&c)
	return c.buf
}

func decodeAttachment(key, payload []byte) (Attachment, error) {
	var a Attachment
	if err := a.Key.UnmarshalText(key); err != nil {
		return Attachment{}, corrupt(err)
	}
	c := codec{reading: true, text: string(payload)}
	a.fields(&c)
	err := c.rest()
	if err == nil {
		err = a.check()
	}
	if err != nil {
		return Attachment{}, corrupt(fmt.Errorf("attachment %q: %w", key, err))
	}
	return a, nil
}

// attachmentText is the JSON form of an Attachment, for people and exports.
type attachmentText struct {
	Key        Key                `json:"key"`
	Pod        protocol.PodRef    `json:"pod,omitzero"`
	Netns      string             `json:"netns,omitempty"`
	NetnsID    string             `json:"netnsID,omitempty"`
	Boot       string             `json:"boot,omitempty"`
	Generation uint64             `json:"generation"`
	Created    time.Time          `json:"created,omitzero"`
	Addresses  []Address          `json:"addresses,omitempty"`
	Claim      *protocol.ClaimRef `json:"claim,omitempty"`
	Use        string             `json:"use,omitempty"`
}

// MarshalJSON returns all of a. Without it, encoding/json would take the text
// form that a has from its Key for the whole.
func (a Attachment) MarshalJSON() ([]byte, error) {
	return json.Marshal(attachmentText{
		a.Key, a.Pod, a.Netns, a.NetnsID, a.Boot, a.Generation, a.Created, a.Addresses, a.Claim, a.Use,
	})
}

// UnmarshalJSON is the inverse of MarshalJSON.
func (a *Attachment) UnmarshalJSON(data []byte) error {
	var t attachmentText
	if err := json.Unmarshal(data, &t); err != nil {
		return err
	}
	*a = Attachment{
		t.Key, t.Pod, t.Netns, t.NetnsID, t.Boot, t.Generation, t.Created, t.Addresses, t.Claim, t.Use,
	}
	return nil
}
