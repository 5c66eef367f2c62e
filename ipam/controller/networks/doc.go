// Package networks reads NetworkAttachmentDefinitions for the controller: whose
// they are, of which pools they give addresses, and which of them a claim means
// that names a network.
//
// A network is the `name` in a CNI configuration, and several definitions may
// have one. The pure part, [Read] and [Resolve], decides; [Catalog] looks
// definitions up in a cache.
package networks
