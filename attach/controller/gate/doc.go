// Package gate holds pods that list PodNetworks back from the scheduler until all of these are
// there and may be used. The API server refuses at once what is wrong with a list, and gives the
// pod a scheduling gate. A reconciler lifts the gate, and says meanwhile what is missing.
//
// Nothing here is needed for a pod to be attached rightly: the node judges a pod's list again,
// by the same code. So an API server that does not reach the webhooks creates pods without them.
package gate
