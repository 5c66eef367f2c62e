// Package route gives a pod's default routes to the attachment that asks for them
// by default-route (NPWG v1.3, 4.1.2.1.9): in the pod's network namespace, and in
// the results by which delegates check it afterwards.
//
// Each IP family stands for itself. Gateways of one family take over the default
// routes of that family alone; an empty list keeps the attachment's own default
// routes and removes all others, of both families. Several gateways of a family
// get metrics 1, 2, 3, … in their order; a single one has the kernel's own.
package route
