// Package deploy carries the manifests that install Tenure, so that programs and
// tests have them without a path.
package deploy

import "embed"

// FS holds the manifests of this directory:
//
//	crds           the CustomResourceDefinitions of tenure.dev, made by controller-gen
//	crds/upstream  those of NetworkAttachmentDefinition and IPAMClaim, as published
//	               upstream, with the short name nad: to be installed only where absent
//	dra            what a cluster with addresses for ResourceClaims has besides
//	names          the role and the flag by which addresses get names
//	podnetworks    what a cluster with PodNetworks has besides
//	policies       ValidatingAdmissionPolicies, each with its binding
//	programs       what runs the agent and the controller, by images that whoever
//	               installs it names
//	rbac           the namespace, service accounts, roles and bindings, and the agents'
//	               place in the API server's line
//
// kustomization.yaml has all of them but crds/upstream.
//
//go:embed crds/*.yaml crds/upstream/*.yaml dra/*.yaml kustomization.yaml names/*.yaml
//go:embed podnetworks/*.yaml policies/*.yaml programs/*.yaml rbac/*.yaml
var FS embed.FS
