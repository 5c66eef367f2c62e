// Package endpoints keeps EndpointSlices for Services that ask for names of the addresses which
// pods have on a secondary network: cluster DNS answers by them. Package names says what such a
// Service asks for; k8s.io/endpointslice, by which Kubernetes' own controller keeps slices, decides
// what is written. It is shown the pods as if the addresses were those of their status.
//
// What it looks at is in caches, so that a look costs no call, and it looks when something has
// changed that decides about a slice. Changes of pods wait a moment for others.
package endpoints
