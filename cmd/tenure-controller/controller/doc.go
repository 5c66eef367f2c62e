// Package controller puts the cluster controller together: the broker, the
// reconcilers of claims, requests, reservations, pools and dead nodes, what looks for
// addresses of other IPAMs, and the manager that elects one leader, keeps the caches and
// serves health and metrics. It decides nothing itself.
package controller
