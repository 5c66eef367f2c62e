// Package resolve is the agent's half of the meta-plugin. It knows what the plugin,
// which lives for some milliseconds, must ask: the pod and what it selects, from
// watches of what this node's pods use, so that an answer takes no API call. And it
// takes what the plugin has to say afterwards: what the pod was attached to becomes
// the pod's status annotation, and what its owner should know an event.
//
// It declares what it needs of a cluster, and is tested without one.
package resolve
