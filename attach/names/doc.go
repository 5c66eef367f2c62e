// Package names reads Services that give names to the addresses which pods have on a secondary
// network, and finds these addresses. Kubernetes itself publishes those on the cluster's network
// alone. It is pure.
package names
