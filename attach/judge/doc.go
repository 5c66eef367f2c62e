// Package judge decides which networks the elements of a pod's list of PodNetworks are, and
// whether the pod may be attached to them now. The gate that holds pods back from the scheduler,
// the agent at an ADD and kubectl decide by the same code, each with what it knows of the
// cluster.
package judge
