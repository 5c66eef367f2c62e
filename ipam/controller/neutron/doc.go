// Package neutron is all that the controller says to OpenStack's Neutron: it reads subnets,
// and makes, finds and deletes the ports that hold the addresses of claims. It knows no
// Kubernetes; a claim is a UID and what it wants.
//
// A port is known as ours by two fields, which are set in the call that makes it:
//
//	device_owner  "tenure:" and the cluster's name, see [Config.Cluster]
//	device_id     the UID of the claim
//
// Any project may write these on its ports. So a port is ours only if it is of the project that the
// credentials are of.
//
// # Calls, time limits and retries
//
// Each HTTP request has [Config.CallTimeout], but for one that makes many ports, which may take
// all the time. A method makes several requests, which share one budget: [Config.Retries]
// more requests than it would need, and [Config.Timeout] altogether.
// A request is made again when what prevented it may pass by itself: an answer 5xx or 429, a
// connection that is refused or breaks, a time limit. Before that it waits 200 ms, then twice
// the time before, up to 2 s; where the answer has a Retry-After, that long, unless the timeout
// ends before. What made something is never simply repeated: Neutron is asked first what it has.
//
// The context of a method bounds all of it. Every method may be called concurrently.
package neutron
