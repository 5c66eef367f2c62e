// Package deploy carries the manifests that install Tenure, so that programs and
// tests have them without a path.
package deploy

import "embed"

// FS holds the manifests of this directory:
//
//	crds           the CustomResourceDefinitions of tenure.dev, made by controller-gen
//	crds/upstream  those of NetworkAttachmentDefinition and IPAMClaim, as published
//	               upstream: to be installed only where absent, never changed
//	policies       ValidatingAdmissionPolicies, each with its binding
//	rbac           the namespace, service accounts, roles and bindings
//
//go:embed crds/*.yaml crds/upstream/*.yaml policies/*.yaml rbac/*.yaml
var FS embed.FS
