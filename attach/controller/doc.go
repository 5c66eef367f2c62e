// Package controller keeps PodNetworks and PodNetworkAttachments: their conditions, the finalizer
// that keeps them while something refers to them, the default PodNetwork, and the
// NetworkAttachmentDefinitions that it makes of InterfaceParameters and IPPools.
package controller
