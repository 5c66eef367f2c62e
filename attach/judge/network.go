package judge

import (
	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/ipam/access"
)

// A Network is what decides of a PodNetwork.
type Network struct {
	UID, Provider     string
	Enabled, Deleting bool
	// Ready is the condition of that name. NotReady says why, while it is not True.
	Ready    bool
	NotReady string
	// Definition is where the network's configuration is; zero where parametersRefs names
	// nothing that could have one.
	Definition facts.Ref
	// Made says that the controller makes the definition, for this network.
	Made bool
	// Access says who may use the network.
	Access access.Rule
}

// An Attachment is what decides of a PodNetworkAttachment.
type Attachment struct {
	UID string
	// Network is the name of its PodNetwork.
	Network  string
	Deleting bool
	Ready    bool
	NotReady string
	// Definition is where its own configuration is, which the controller makes; zero where it has
	// that of its network.
	Definition facts.Ref
}
