package store

import (
	"encoding/json"
	"time"

	"github.com/tenure-ipam/tenure/ipam/protocol"
)

// attachmentRecord is an Attachment as the file holds it: everything but the
// key, under which it stands. Without a JSON form of its own an Attachment would
// be written by the text form that it has from its Key.
type attachmentRecord struct {
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

// MarshalJSON returns a without its key.
func (a Attachment) MarshalJSON() ([]byte, error) {
	return json.Marshal(attachmentRecord{
		a.Pod, a.Netns, a.NetnsID, a.Boot, a.Generation, a.Created, a.Addresses, a.Claim, a.Use,
	})
}

// UnmarshalJSON reads everything of a but its key, which it leaves as it is.
func (a *Attachment) UnmarshalJSON(text []byte) error {
	var r attachmentRecord
	if err := json.Unmarshal(text, &r); err != nil {
		return err
	}
	*a = Attachment{a.Key, r.Pod, r.Netns, r.NetnsID, r.Boot, r.Generation, r.Created, r.Addresses, r.Claim, r.Use}
	return nil
}
