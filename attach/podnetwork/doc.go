// Package podnetwork reads PodNetworks and PodNetworkAttachments as the API server has them.
//
// Every PodNetwork of Tenure's provider ends at a NetworkAttachmentDefinition: at that which it
// refers to, or at one that the controller makes of its InterfaceParameters and its IPPool. So
// from there on PodNetworks are attached, shown and counted as all other networks are.
package podnetwork
