// Package podnetworks keeps PodNetworks and PodNetworkAttachments: their conditions, the finalizer
// that keeps them while something refers to them, the default PodNetwork, and the
// NetworkAttachmentDefinitions that it makes of InterfaceParameters and IPPools. It also makes
// those of definitions that have no configuration, whose interfaces the control plane decides.
package podnetworks
