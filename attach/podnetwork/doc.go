// Package podnetwork decides which networks the elements of a pod's list of PodNetworks are, and
// whether the pod may be attached to them now. The gate that holds pods back from the scheduler,
// the agent at an ADD and kubectl decide by the same code, each with what it knows of the
// cluster.
//
// Every PodNetwork of Tenure's provider ends at a NetworkAttachmentDefinition: at that which it
// refers to, or at one that the controller makes of its InterfaceParameters and its IPPool. So
// from there on PodNetworks are attached, shown and counted as all other networks are.
package podnetwork
