// Package cluster runs a real Kubernetes cluster on one machine: the control plane
// of [controlplane] with a scheduler and all controllers, and nodes that each have
// a kubelet, kube-proxy, containerd and runc, a network, and a file system of their own.
//
//	func TestMain(m *testing.M) { os.Exit(cluster.Main(m.Run)) }
//
//	func TestSomething(t *testing.T) {
//		c, err := cluster.Start(t.Context(), cluster.Options{Nodes: 2, Say: t.Log})
//		…
//	}
//
// A node is a process, its init, in namespaces of its own: pid, mount, network, host
// name, IPC. Killing it is what pulling a machine's plug is. At their usual paths
// it has directories that no other node sees:
//
//	/etc, /opt             the machine's without its CNI, and over them what is written to
//	                       the node's
//	/run                   a tmpfs, empty after every boot
//	/var/lib, /var/log     the node's disk
//
// All nodes are in the sandbox, so everything ends with the program, however that
// ends: processes, namespaces, interfaces, mounts. Two things are no namespace's. The
// kubelet sets the kernel's panic and overcommit parameters: a node has files in
// their places. And the nodes' cgroups are removed when the cluster stops; those
// that a killed program left, empty, are removed by the next.
//
// The network:
//
//	sandbox    br-nodes 10.222.0.1: the API server at port 6443
//	           br-lan: a switch without addresses, for pods' further networks
//	node i     eth0 10.222.0.1i, pods 10.244.i.0/24 by bridge and host-local
//	           eth1: the cable to br-lan
//
// With $TENURE_FAMILIES ipv6 all that is 10.… is of IPv6 instead, and with dual of both families.
// With $TENURE_KUBE 1.32 control plane and kubelets are of that minor version of Kubernetes.
//
// Services work, the API server's own among them: every node has a kube-proxy, which
// writes nftables rules into the node's network namespace. There is no DNS.
//
// Stock Multus and stock whereabouts can be installed beside Tenure, or in its place, and
// removed again: for tests in which pods move from one to the other.
package cluster
