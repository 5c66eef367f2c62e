// Package controlplane runs a real Kubernetes control plane for tests: etcd,
// kube-apiserver and, on request, kube-controller-manager and kube-scheduler, on
// the loopback of a [sandbox], which is where they end with the test whatever happens.
//
//	func TestMain(m *testing.M) { os.Exit(sandbox.Main(sandbox.Options{}, m.Run)) }
//
//	func TestSomething(t *testing.T) {
//		cp := controlplane.New(t, controlplane.Options{CRDs: []string{"../../deploy/crds"}})
//		c, err := client.New(cp.Config(), client.Options{})
//		…
//	}
//
// It is ready in about 3 seconds on two cores. The API server can be stopped,
// started again on the same port over the same data, and paused as if the
// network were gone; users and service accounts get credentials of their own.
// Node authorization, RBAC and admission are on, as in a cluster, but for the
// ServiceAccount admission plugin: pods need no service account, unless the
// controller manager runs, which makes them.
//
// docs/decisions says why this is not controller-runtime's envtest.
package controlplane
