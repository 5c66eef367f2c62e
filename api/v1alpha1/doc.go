// Package v1alpha1 is the API that users and Tenure's own programs write:
// group tenure.dev, version v1alpha1. It holds types and their schema markers
// and no behaviour; package ipam/poolspec turns a pool's text into typed values,
// and package ipam/protocol defines what leases and sub-leases mean.
//
// An [IPPool] is written by people (or by the controller for pools that network
// attachment definitions describe inline). [IPLease] and [IPSubLease] are
// written by Tenure's programs alone and read by people.
//
// +kubebuilder:object:generate=true
// +groupName=tenure.dev
package v1alpha1
