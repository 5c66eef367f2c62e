package main

import "github.com/tenure-ipam/tenure/test/demo/show"

// scenes are in order. The last one gives everything back.
var scenes = []show.Scene[*demo]{
	{
		Title: "A pool of addresses, and a network that names it",
		Why: "A person creates an IPPool: the addresses of one L2 segment. A network asks Tenure for addresses by one word, \"type\": \"tenure\", " +
			"and names the pool. The controller checks the pool, decides how large its blocks are, and opens it.",
		Play: (*demo).playPool,
	},
	{
		Title: "Ordinary pods: the API server is asked once for 64 addresses, not once for each",
		Why: "The first ADD on a node creates a lease on a whole block; a lease's name is computed from the block, so that the API server itself refuses " +
			"a second one. From then on the node's agent gives addresses out of a file of its own, synced before the answer. (Here the file is on a " +
			"tmpfs; a disk adds the time of an fsync.)",
		Play: (*demo).playOrdinary,
	},
	{
		Title: "The API server does not answer, and a pod starts all the same",
		Why: "kube-apiserver is frozen (SIGSTOP): connections stay open, no answer comes. The node has leased its block already, and knows its own " +
			"pods, and the networks that they select, from watches.",
		Play: (*demo).playFrozen,
	},
	{
		Title: "A claim: an address that is there before its pod",
		Why: "An IPAMClaim asks for addresses that outlive pods. The controller grants them out of blocks that the cluster holds, so that no node owns " +
			"them. The address can go into DNS or a firewall before anything runs.",
		Play: (*demo).playClaim,
	},
	{
		Title: "The pod is deleted, and made anew on the other node: the same address",
		Why: "Between the two pods the address belongs to the claim: nobody else is given it. (The pod asks for its MAC as well, so that what its " +
			"neighbours remember stays right.)",
		Play: (*demo).playMove,
	},
	{
		Title: "Live migration: two pods on one claim at once",
		Why: "A virtual machine moves while it runs: for a while it has a pod on each node, and both need its address. They are siblings, pods of one " +
			"VirtualMachineInstance, and may. Anybody else who names the claim is refused. A neighbour pings the machine all the while.",
		Play: (*demo).playMigration,
	},
	{
		Title: "An address asked for by name",
		Why: "A selection may say which address it wants. It gets that one, and no other of its family, or an error that says why not. The pool keeps " + staticRange +
			" for those who ask.",
		Play: (*demo).playStatic,
	},
	{
		Title: "A StatefulSet: every pod has the address that was asked for it, and keeps it",
		Why: "Two annotations on the template are all. The controller makes a claim for every pod at once, so that firewalls and DNS can be written " +
			"before anything runs. A pod of the StatefulSet finds its claim by its own name.",
		Play: (*demo).playStateful,
	},
	{
		Title: "Racks: one network, and a subnet for each rack",
		Why: "The racks of a fabric have subnets of their own, with routers between them. A range of the pool selects nodes by their labels. All racks " +
			"have one pool and one definition. A claim waits for the node of its first pod, as a volume may.",
		Play: (*demo).playRacks,
	},
	{
		Title: "A PodNetwork: a network of the cluster, without CNI configuration by hand",
		Why: "The Kubernetes multi-network proposal has networks as objects. A PodNetwork names a pool, and how interfaces are made; the controller " +
			"says whether it is Ready. A pod lists its networks in an annotation, and its default route goes through the one that it says.",
		Play: (*demo).playPodNetwork,
	},
	{
		Title: "Moving in: a network changes its IPAM while its pods run",
		Why: "The network depot has its addresses by host-local, which keeps them in files on the node. It knows nothing of other nodes, and so each " +
			"node has a definition of its own, with a part of the range, here four addresses. kubectl tenure import changes one word in them.",
		Play: (*demo).playMoving,
	},
	{
		Title: "A DEL while the agent is away",
		Why: "The agent of node-b is killed (SIGKILL). Pods go on running, and deleting one must not wait for the agent: the CNI plugin writes the DEL " +
			"into a journal on disk and reports success. A new pod is told to try again later.",
		Play: (*demo).playAway,
	},
	{
		Title: "What would a pod be attached to? Asked before there is one",
		Why: "A pod may select several networks. kubectl tenure explain makes the plan that the meta-plugin on the node would make, by the same code: " +
			"what each plugin is going to be given, or every reason why the pod would fail.",
		Play: (*demo).playExplain,
	},
	{
		Title: "A pod with three networks: one by claim, one static, one ordinary",
		Why: "The runtime makes one call. The meta-plugin tenure-attach writes the whole plan to disk, runs the plugins of the default network and of " +
			"the three others, one after the other, and answers. Then the agent writes into the pod's status annotation what the pod has.",
		Play: (*demo).playSeveral,
	},
	{
		Title: "A network comes, and goes, while the pod runs",
		Why: "A person edits the annotation of a pod that runs. The service tenured hotplug beside the agent makes the plan anew, compares it with the " +
			"journal, and runs the plugins for what has changed. What the pod has already is not touched.",
		Play: (*demo).playPlug,
	},
	{
		Title: "A DEL with nobody left to ask",
		Why: "The pod is deleted by force, and so are two of its networks. Then the agent is killed, and the API server frozen. What is to be undone " +
			"is in the journal that tenure-attach wrote before the first plugin was run.",
		Play: (*demo).playAlone,
	},
	{
		Title: "Everything is deleted, and every address comes back by itself",
		Why: "The virtual machine is stopped, and all pods are deleted: the claims keep their addresses. Then the machine, with which Kubernetes' garbage " +
			"collector deletes its claim; the other claim; and the pools, which wait until nobody holds a lease of them.",
		Play: (*demo).playEnd,
	},
}
