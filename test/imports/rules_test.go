package imports

import "github.com/tenure-ipam/tenure/test/programs"

// rule says what one package must not know of. Paths are prefixes of import
// paths; those that begin with "./" are Tenure's own.
//
// A path of another module is forbidden however it is reached; one of the
// standard library only if the package imports it itself (fmt knows os). Tests
// are free: they may use whatever shows that the package is right.
type rule struct {
	pkg   string // "./…"
	why   string
	never []string

	// but are Tenure's own packages that it may know of all the same.
	but []string

	// reaches are paths that must not be linked in at all, those of the
	// standard library included.
	reaches []string
}

// What several packages must not know of.
var (
	kubernetes = []string{"k8s.io/", "sigs.k8s.io/", "github.com/k8snetworkplumbingwg/"}
	clients    = []string{"k8s.io/client-go", "k8s.io/apiextensions-apiserver", "sigs.k8s.io/controller-runtime"}
	bolt       = []string{"go.etcd.io/bbolt"}
	cni        = []string{"github.com/containernetworking/"}
	processes  = []string{"os/exec"}
	outside    = []string{"os", "net", "net/http", "log", "log/slog", "context"}
	ours       = []string{"./"}
)

// rooms are the folders whose packages one process runs, or one side. A rule of a room
// holds for every package in it: so the arrows between them go one way.
var rooms = []rule{
	{
		pkg: "./ipam", why: "addresses are given without knowing who asks: what wires ipam with attach and claims stands in cmd",
		never: []string{"./attach", "./claims", "./cmd"},
	},
	{
		pkg: "./ipam/node", why: "what the agent runs knows no client, no controller and no plugin",
		never: join(kubernetes, cni, []string{"./ipam/controller", "./ipam/cni", "./ipam/kube", "./api/v1alpha1"}),
	},
	{
		pkg: "./ipam/controller", why: "what the controller runs has no node",
		never: join(bolt, cni, []string{"./ipam/node", "./ipam/cni", "./ipam/agentapi", "./ipam/delqueue", "./ipam/lean/cnicall"}),
	},
	{
		pkg: "./ipam/cni", why: "what the plugin runs asks the agent, or in local mode the store on its disk",
		never: join(kubernetes, []string{"./ipam/node", "./ipam/controller", "./ipam/kube", "./api/v1alpha1"}), but: []string{"./ipam/node/assign", "./ipam/node/store", "./ipam/node/store/disk"},
	},
	{
		pkg: "./ipam/lean", why: "it makes a process start and end fast, whatever the process is about",
		never: join(kubernetes, bolt, []string{"./allocator", "./api", "./ipam/protocol", "./ipam/poolspec", "./ipam/agentapi", "./ipam/node", "./ipam/controller", "./ipam/cni", "./ipam/kube"}),
	},
	{
		pkg: "./cmd/kubectl-tenure", why: "people run it: it reads a cluster, and has no node",
		never: join(bolt, []string{"./claims", "./ipam/node/agent", "./ipam/node/store", "./attach/cni/delegate"}),
	},
	{
		pkg: "./attach", why: "interfaces are made without knowing where their addresses come from",
		never: []string{"./ipam/node", "./ipam/controller", "./ipam/cni", "./ipam/kube", "./claims", "./cmd"},
	},
	{
		pkg: "./claims", why: "claims are cluster-wide: they know no node",
		never: []string{"./ipam/node", "./ipam/cni", "./ipam/agentapi", "./attach", "./cmd"},
	},
	{
		pkg: "./api", why: "what users write knows nobody who reads it",
		never: []string{"./allocator", "./ipam", "./claims", "./attach", "./cmd"}, but: []string{"./ipam/lean/plainjson"},
	},
}

// rules are the arrows between the packages. Every package that is not a test
// has one, so that a new one begins with the question where it stands.
var rules = []rule{
	{
		pkg: "./allocator", why: "the allocator is pure: values in, values out, no clock",
		never: join(ours, kubernetes, bolt, cni, outside, []string{"time"}),
	},
	{
		pkg: "./api/podnetwork", why: "plugins read a pod's list of PodNetworks with it: pure",
		never: join(kubernetes, clients, bolt, cni, []string{"os", "net/http", "log", "log/slog", "context"}),
	},
	{
		pkg: "./attach/judge", why: "agent, gate and kubectl decide alike by it, each with what it knows: no clients, no types of theirs",
		never: join(kubernetes, bolt, cni, []string{"./api/v1alpha1"}),
	},
	{
		pkg: "./attach/podnetwork", why: "it turns objects into plain types, whoever has read them",
		never: join(clients, bolt, cni),
	},
	{
		pkg: "./attach/controller/gate", why: "the controller holds pods back by it: it judges as a node does, and attaches nothing",
		never: join(bolt, cni, processes, []string{"./ipam", "./attach/plan", "./attach/cni/delegate", "./attach/node/resolve"}), but: []string{"./ipam/access", "./ipam/labels", "./ipam/poolspec", "./ipam/lean/plainjson"},
	},
	{
		pkg: "./attach/certificate", why: "kubectl makes the certificate and the controller reads it from files: nobody calls the API server for it here",
		never: join(ours, kubernetes, bolt, cni, processes),
	},
	{
		pkg: "./attach/controller/podnetworks", why: "it keeps networks: who attaches pods to them, and who has their addresses, is not its business",
		never: join(bolt, cni, []string{"./attach/node/resolve", "./attach/cni/delegate", "./attach/cni/plugin", "./attach/journal", "./ipam/node", "./ipam/agentapi"}),
	},
	{
		pkg: "./attach/names", why: "controller and kubectl read Services by it: pure, and without the library that writes slices",
		never: join(clients, bolt, cni, processes, []string{"k8s.io/endpointslice", "./ipam/kube", "./api/v1alpha1"}),
	},
	{
		pkg: "./attach/controller/endpoints", why: "it publishes what pods have: who gives addresses, and who attaches pods, is not its business",
		never: join(bolt, cni, processes, []string{"./ipam", "./attach/node", "./attach/plan", "./attach/cni", "./attach/journal"}), but: []string{"./ipam/reported", "./ipam/lean/plainjson"},
	},
	{
		pkg: "./allocator/allocatortest", why: "it proves tables of the allocator, and needs nothing else",
		never: join(kubernetes, bolt, cni, []string{"./ipam", "./claims", "./attach", "./api/v1alpha1", "./test"}),
	},
	{
		pkg: "./api/v1alpha1", why: "the API's types are what users write: others build on them, they on nobody",
		never: join(ours, clients, bolt, cni),
	},
	{
		pkg: "./deploy", why: "what is shipped as files knows nobody",
		never: join(ours, kubernetes, bolt, cni),
	},
	{
		pkg: "./deploy/image", why: "it puts programs into archives, whatever they are",
		never: join(ours, kubernetes, bolt, cni),
	},
	{
		pkg: "./deploy/image/build", why: "a tool of who ships: it knows the images alone",
		never: join(ours, kubernetes, bolt, cni), but: []string{"./deploy/image"},
	},
	{
		pkg: "./deploy/release", why: "a tool of who ships: it knows the images alone",
		never: join(ours, kubernetes, bolt, cni), but: []string{"./deploy/image"},
	},
	{
		pkg: "./test/demo", why: "its first scenes are seen within a minute: it is built before anything of Kubernetes is",
		never: kubernetes,
	},
	{
		pkg: "./ipam/pause", why: "it waits, for whoever has to",
		never: join(ours, kubernetes, bolt, cni),
	},
	{
		pkg: "./ipam/history", why: "agents write it, and kubectl reads what they answer: it knows lines and files alone",
		never: join(ours, kubernetes, bolt, cni, processes, []string{"net", "net/http"}),
	},
	{
		pkg: "./ipam/rest", why: "it knows numbers and times: what is freed, and when, it is told",
		never: join(ours, kubernetes, bolt, cni),
	},
	{
		pkg: "./ipam/node/dranet", why: "it reads and writes DRANET's words: whose addresses they are the agent decides, and what the cluster has it is told",
		never: join(kubernetes, cni, processes, []string{"./attach", "./claims"}),
	},
	{
		pkg: "./ipam/node/sched", why: "it starts what an agent does, whatever that is",
		never: join(ours, kubernetes, bolt, cni), but: []string{"./ipam/protocol"},
	},
	{
		pkg: "./ipam/lean/quiet", why: "it waits for the kernel, whoever has to",
		never: join(ours, kubernetes, bolt, cni, outside),
	},
	{
		pkg: "./ipam/lean/plainjson", why: "it knows JSON alone",
		never: join(ours, kubernetes, bolt, cni, outside),
	},
	{
		pkg: "./ipam/lean/plainjson/plainjsontest", why: "tests of what knows JSON alone use it",
		never: join(ours, kubernetes, bolt, cni),
	},
	{
		pkg: "./ipam/poolspec", why: "it turns text into types, for a cluster or without one",
		never: join(kubernetes, bolt, []string{"./ipam", "./api/v1alpha1"}), but: []string{"./ipam/labels", "./ipam/lean/plainjson"},
	},
	{
		pkg: "./ipam/labels", why: "the plugin links it: selectors and labels alone",
		never: join(ours, kubernetes, bolt, cni, outside),
	},
	{
		pkg: "./ipam/access", why: "agent and controller decide by it alike: it is told what is known of namespaces, and asks nobody",
		never: join(ours, kubernetes, bolt, cni, []string{"os", "net", "net/http", "log", "log/slog"}), but: []string{"./ipam/labels"},
	},
	{
		pkg: "./ipam/node/store", why: "what a node promised is kept without knowing who asks: neither Kubernetes nor CNI",
		never: join(kubernetes, cni, []string{"./ipam/node/agent", "./ipam/node/assign", "./ipam/agentapi"}),
	},
	{
		pkg: "./ipam/node/store/disk", why: "maps and transactions, whatever is kept in them",
		never: join(ours, kubernetes, bolt, cni, outside),
	},
	{
		pkg: "./ipam/agentapi", why: "both ends of the node socket link it: plain frames and plain types",
		never: join(ours, kubernetes, bolt, cni), but: []string{"./ipam/lean/plainjson", "./ipam/pause", "./ipam/lean/quiet"},
	},
	{
		pkg: "./ipam/atomicfile", why: "plain files, whoever keeps something in them",
		never: join(ours, kubernetes, bolt, cni),
	},
	{
		pkg: "./ipam/lean/cniname", why: "it knows the rules of CNI for names alone",
		never: join(ours, kubernetes, bolt), reaches: []string{"regexp"},
	},
	{
		pkg: "./ipam/delqueue", why: "the plugin links it: plain files",
		never: join(kubernetes, bolt, cni),
	},
	{
		pkg: "./ipam/netns", why: "plugin and agent tell network namespaces apart alike: plain files",
		never: join(ours, kubernetes, bolt, cni),
	},
	{
		pkg: "./ipam/lean/cnicall", why: "plugins begin and end a call with it, whatever they serve",
		never: join(ours, kubernetes, bolt), but: []string{"./ipam/lean/cniname", "./ipam/netns", "./ipam/lean/plainjson"},
	},
	{
		pkg: "./ipam/cniresults", why: "others' files are read without knowing what for",
		never: join(ours, kubernetes, bolt, cni), but: []string{"./ipam/lean/plainjson"},
	},
	{
		pkg: "./ipam/protocol", why: "the simulation runs the steps that ship: no clock, no I/O, no clients",
		never: join(kubernetes, bolt, cni, outside, []string{"./ipam", "./api/v1alpha1"}),
	},
	{
		pkg: "./cmd/kubectl-tenure/screen", why: "it writes for people, whatever the verb has found",
		never: join(ours, bolt, cni, []string{"k8s.io/client-go/rest", "sigs.k8s.io/controller-runtime"}),
	},
	{
		pkg: "./cmd/kubectl-tenure/session", why: "it serves the verbs, whatever they are about",
		never: []string{"./cmd", "./attach", "./ipam/controller"}, but: []string{"./cmd/kubectl-tenure/screen"},
	},
	{
		pkg: "./cmd/kubectl-tenure/state", why: "it serves several verbs, and is about none of them",
		never: []string{"./cmd/kubectl-tenure"}, but: []string{"./cmd/kubectl-tenure/audit", "./cmd/kubectl-tenure/screen", "./cmd/kubectl-tenure/session"},
	},
	{
		pkg: "./cmd/kubectl-tenure/moving", why: "it moves pods between IPAMs, and shows and releases nothing else",
		never: []string{"./cmd/kubectl-tenure"}, but: []string{"./cmd/kubectl-tenure/audit", "./cmd/kubectl-tenure/screen", "./cmd/kubectl-tenure/session", "./cmd/kubectl-tenure/state", "./cmd/kubectl-tenure/translation"},
	},
	{
		pkg: "./cmd/kubectl-tenure/translation", why: "it writes one IPAM's pools as another's, by what was read: no verb, no calls",
		never: []string{"./cmd", "./attach", "./claims", "./ipam/controller", "./ipam/node"},
	},
	{
		pkg: "./cmd/kubectl-tenure/check", why: "it reads what the rules are held to, and prints what they say",
		never: []string{"./cmd/kubectl-tenure"}, but: []string{"./cmd/kubectl-tenure/audit", "./cmd/kubectl-tenure/screen", "./cmd/kubectl-tenure/session", "./cmd/kubectl-tenure/state"},
	},
	{
		pkg: "./cmd/kubectl-tenure/bundle", why: "it writes down what others are to look at, and what check finds",
		never: []string{"./cmd/kubectl-tenure"}, but: []string{"./cmd/kubectl-tenure/audit", "./cmd/kubectl-tenure/check", "./cmd/kubectl-tenure/screen", "./cmd/kubectl-tenure/session", "./cmd/kubectl-tenure/state"},
	},
	{
		pkg: "./cmd/kubectl-tenure/release", why: "it writes for a node that is lost, and needs nothing of other verbs",
		never: []string{"./cmd/kubectl-tenure"}, but: []string{"./cmd/kubectl-tenure/audit", "./cmd/kubectl-tenure/screen", "./cmd/kubectl-tenure/session", "./cmd/kubectl-tenure/state"},
	},
	{
		pkg: "./cmd/kubectl-tenure/install", why: "it is about what is installed, not about addresses",
		never: []string{"./cmd/kubectl-tenure"}, but: []string{"./cmd/kubectl-tenure/audit", "./cmd/kubectl-tenure/screen", "./cmd/kubectl-tenure/session", "./cmd/kubectl-tenure/state"},
	},
	{
		pkg: "./cmd/kubectl-tenure/pods", why: "it asks who has an address, and no other verb",
		never: []string{"./cmd/kubectl-tenure"}, but: []string{"./cmd/kubectl-tenure/audit", "./cmd/kubectl-tenure/screen", "./cmd/kubectl-tenure/session", "./cmd/kubectl-tenure/state", "./cmd/kubectl-tenure/who"},
	},
	{
		pkg: "./cmd/kubectl-tenure/who", why: "it answers for one address, and needs no other verb",
		never: []string{"./cmd/kubectl-tenure"}, but: []string{"./cmd/kubectl-tenure/audit", "./cmd/kubectl-tenure/screen", "./cmd/kubectl-tenure/session", "./cmd/kubectl-tenure/state"},
	},
	{
		pkg: "./cmd/kubectl-tenure/listing", why: "it lists what is kept, and needs no other verb",
		never: []string{"./cmd/kubectl-tenure"}, but: []string{"./cmd/kubectl-tenure/audit", "./cmd/kubectl-tenure/screen", "./cmd/kubectl-tenure/session", "./cmd/kubectl-tenure/state"},
	},
	{
		pkg: "./cmd/kubectl-tenure/ui", why: "it shows what other verbs find out, and changes nothing",
		never: []string{"./cmd/kubectl-tenure/moving", "./cmd/kubectl-tenure/release", "./cmd/kubectl-tenure/install", "./cmd/kubectl-tenure/listing"},
	},
	{
		pkg: "./cmd/kubectl-tenure/audit", why: "it judges what was read: no clients, no clock, no I/O",
		never: join(kubernetes, bolt, cni, outside, []string{"./ipam/node/agent", "./ipam/kube", "./ipam/node/store", "./ipam/agentapi", "./api/v1alpha1", "./claims", "./attach"}),
	},
	{
		pkg: "./ipam/controller/grants", why: "it declares what it needs of a cluster, and is proved by simulation without one",
		never: join(kubernetes, bolt, cni, []string{"os", "net", "net/http", "./ipam/kube", "./api/v1alpha1"}),
	},
	{
		pkg: "./ipam/controller/networks", why: "it reads definitions: who acts on them is not its business",
		never: join(bolt, cni, []string{"./ipam/controller/grants", "./ipam/kube", "./api/v1alpha1"}),
	},
	{
		pkg: "./ipam/foreign", why: "it decides what other IPAMs have given, by what was read: no clients, no grants",
		never: join(bolt, cni, []string{"./ipam/node/agent", "./ipam/controller/grants", "./ipam/node/store", "./ipam/agentapi"}),
	},
	{
		pkg: "./ipam/controller/looker", why: "it looks for the controller: it knows neither node nor claim",
		never: join(bolt, cni, []string{"./ipam/controller/pools"}),
	},
	{
		pkg: "./ipam/controller/reservations", why: "what is reserved is no pod's and no claim's",
		never: join(bolt, cni, []string{"./ipam/controller/pools"}),
	},
	{
		pkg: "./ipam/controller/pools", why: "pools are cluster-wide: they know neither nodes nor claims",
		never: join(bolt, cni, []string{"./ipam/controller/grants"}),
	},
	{
		pkg: "./ipam/controller/strangers", why: "it makes reservations, and who keeps these has no other word for it",
		never: join(bolt, cni, []string{"./ipam/controller/grants", "./ipam/node", "./claims"}),
	},
	{
		pkg: "./ipam/controller/nodelabels", why: "it copies labels: who has addresses is not its business",
		never: join(bolt, cni, []string{"./ipam/controller/grants", "./ipam/node", "./claims"}),
	},
	{
		pkg: "./ipam/controller/advertise", why: "it tells nodes what pools have: it grants nothing, and knows claims by their names",
		never: join(bolt, cni, []string{"./ipam/controller/grants"}),
	},
	{
		pkg: "./ipam/controller/deadnodes", why: "it takes from nodes that are dead: it has none, and knows no claims",
		never: join(bolt, cni, []string{"./ipam/controller/grants"}),
	},
	{
		pkg: "./ipam/reported", why: "it knows names, and what is reported of them is for others to say",
		never: join(ours, bolt, cni),
	},
	{
		pkg: "./ipam/controller/trigger", why: "it knows names alone",
		never: join(ours, bolt, cni),
	},
	{
		pkg: "./ipam/controller/requests", why: "the controller answers nodes' requests with it: it knows neither node nor claim",
		never: join(bolt, cni),
	},
	{
		pkg: "./ipam/controller/neutron", why: "it says to Neutron what it is told to: who wants a port, and why, is not its business",
		never: join(ours, kubernetes, bolt, cni, processes), but: []string{"sigs.k8s.io/yaml"},
	},
	{
		pkg: "./ipam/controller/ports", why: "it knows claims by their UIDs, and what is granted to them by who asks: it neither grants nor knows nodes",
		never: join(bolt, cni, []string{"./claims", "./ipam/node/agent", "./ipam/node/store"}),
	},
	{
		pkg: "./cmd/tenure-controller/controller", why: "it wires the cluster controller, which has no node",
		never: join(bolt, cni, []string{"./ipam/node/agent", "./cmd/tenured/daemon", "./ipam/node/store", "./ipam/agentapi", "./ipam/cni/plugin", "./cmd"}),
	},
	{
		pkg: "./ipam/node/assign", why: "agent and local mode share these decisions",
		never: join(kubernetes, cni, []string{"./ipam/node/agent"}),
	},
	{
		pkg: "./ipam/cni/local", why: "local mode has no cluster, and its plugin starts within milliseconds",
		never: join(kubernetes),
	},
	{
		pkg: "./ipam/node/recovery", why: "it reads traces of what was: who asks the cluster is not its business",
		never: join(kubernetes, cni, []string{"./ipam/node/agent"}),
	},
	{
		pkg: "./ipam/node/leasestatus", why: "it says what the store has: whether it may is not its business",
		never: join(kubernetes, cni, []string{"./ipam/node/agent"}),
	},
	{
		pkg: "./ipam/node/sightings", why: "it says what is on the host and in the store: who asks is not its business",
		never: join(kubernetes, cni, []string{"./ipam/node/agent"}),
	},
	{
		pkg: "./ipam/node/agent", why: "the agent declares what it needs of a cluster, and is tested without one",
		never: join(kubernetes, cni),
	},
	{
		pkg: "./ipam/kube", why: "it runs effects against the API, for node and controller alike",
		never: join(bolt, cni, []string{"./ipam/node/agent", "./ipam/node/store", "./ipam/agentapi"}),
	},
	{
		pkg: "./cmd/tenured/daemon", why: "it wires a node's agent: claims and programs are not its business",
		never: []string{"./claims", "./cmd", "./ipam/controller/grants", "./ipam/cni/local", "./ipam/cni/plugin", "./attach/cni/delegate"},
	},
	{
		pkg: "./ipam/cni/plugin", why: "the plugin is thin: the agent is the one to talk to a cluster",
		never: join(kubernetes),
	},
	{
		pkg: "./claims", why: "claims are cluster-wide: they know no node",
		never: join(bolt, cni, []string{"./ipam/node/agent", "./ipam/node/store", "./ipam/agentapi", "./ipam/cni/plugin"}),
	},
	{
		pkg: "./claims/workloads", why: "it makes claims: what addresses they get is not its business",
		never: join(bolt, cni, []string{"./claims", "./ipam/controller/grants", "./ipam/node", "./ipam/agentapi"}),
	},
	{
		pkg: "./claims/vifs", why: "it makes claims, and says what the interfaces are: what addresses they get, and who attaches them, is not its business",
		never: join(bolt, cni, []string{"./claims", "./ipam/controller/grants", "./ipam/node", "./ipam/agentapi"}),
	},
	{
		pkg: "./attach/facts", why: "plugin and agent link it: plain types",
		never: join(ours, kubernetes, bolt, cni, outside), but: []string{"./ipam/lean/plainjson"},
	},
	{
		pkg: "./attach/node/resolve", why: "it declares what it needs of a cluster, and is tested without one; what it knows it tells, it runs nothing",
		never: join(kubernetes, bolt, processes, []string{"./ipam/node/agent", "./ipam/kube", "./ipam/node/store", "./api/v1alpha1", "./claims"}),
	},
	{
		pkg: "./attach/node/ready", why: "it looks at files, and asks nobody but who is handed to it",
		never: join(kubernetes, bolt, processes, []string{"./ipam", "./api/v1alpha1", "./claims"}), but: []string{"./ipam/lean/cniname", "./ipam/atomicfile", "./ipam/lean/plainjson"},
	},
	{
		pkg: "./attach/node/hotplug", why: "it changes running pods with rights on the host and none in the cluster: the agent says what is to be known",
		never: join(kubernetes, bolt, processes, []string{"./attach/node/resolve", "./ipam/node", "./ipam/kube", "./api/v1alpha1", "./claims"}),
	},
	{
		pkg: "./attach/node/missed", why: "it looks at what the runtime has noted, and asks nobody but who is handed to it",
		never: join(kubernetes, bolt, processes, []string{"./ipam", "./api/v1alpha1", "./claims"}),
		but:   []string{"./ipam/cniresults", "./ipam/lean/cniname", "./ipam/lean/plainjson", "./ipam/pause", "./ipam/protocol"},
	},
	{
		pkg: "./attach/node/devices", why: "it asks the kubelet, and knows nobody",
		never: join(ours, clients, bolt, cni, processes),
	},
	{
		pkg: "./attach/plan", why: "the same facts give the same plan, on a node and in kubectl: no clients, no I/O",
		never: join(kubernetes, bolt, processes, []string{"os", "net", "net/http", "context", "./ipam", "./api/v1alpha1", "./claims"}), but: []string{"./ipam/lean/cniname", "./ipam/lean/plainjson"},
	},
	{
		pkg: "./api/npwg", why: "annotations become steps without I/O",
		never: join(clients, bolt, processes, []string{"os", "./ipam"}), but: []string{"./ipam/lean/plainjson"},
	},
	{
		pkg: "./api/workload", why: "controller and agents compute the same names by it: text becomes types, without I/O",
		never: join(kubernetes, bolt, cni, outside, []string{"./ipam", "./api/v1alpha1"}), but: []string{"./ipam/lean/plainjson"},
	},
	{
		pkg: "./api/vif", why: "controller and agents compute the same names by it: text becomes types, without I/O",
		never: join(kubernetes, bolt, cni, []string{"./ipam", "./api/v1alpha1", "os", "log", "log/slog", "context"}), but: []string{"./ipam/lean/plainjson"},
	},
	{
		pkg: "./attach/journal", why: "a DEL needs what is in it and nobody else: plain files",
		never: join(kubernetes, bolt, processes, []string{"./ipam", "./api/v1alpha1", "./claims"}), but: []string{"./ipam/lean/cniname", "./ipam/atomicfile", "./ipam/pause", "./ipam/lean/plainjson"},
	},
	{
		pkg: "./attach/cni/route", why: "it knows routes and results, not who asks for them",
		never: join(ours, kubernetes, bolt, processes), but: []string{"./ipam/netns"},
	},
	{
		pkg: "./attach/cni/segment", why: "it knows addresses and neighbours, not who has given the addresses",
		never: join(ours, kubernetes, bolt, cni, processes), but: []string{"./ipam/netns"},
	},
	{
		pkg: "./attach/cni/delegate", why: "it runs on the host with a plan and a journal, and asks nobody",
		never: join(kubernetes, bolt, []string{"./ipam", "./api/v1alpha1", "./claims"}), but: []string{"./ipam/cniresults", "./ipam/lean/cniname", "./ipam/atomicfile", "./ipam/netns", "./ipam/pause", "./ipam/lean/plainjson"},
	},
	{
		pkg: "./attach/cni/plugin", why: "the plugin is thin: the agent is the one to talk to a cluster",
		never: join(kubernetes, bolt, []string{"./ipam", "./api/v1alpha1", "./claims", "./attach/node/resolve"}),
		but:   []string{"./ipam/cniresults", "./ipam/atomicfile", "./ipam/lean/plainjson", "./ipam/agentapi", "./ipam/lean/cnicall", "./ipam/netns", "./ipam/pause", "./ipam/lean/quiet", "./ipam/lean/cniname"},
	},
	{
		pkg: "./cmd/tenure-attach", why: "it runs once for every pod: it starts within milliseconds, and holds no credentials",
		never:   join(kubernetes, bolt, []string{"./ipam/node/agent", "./ipam/kube", "./ipam/node/store", "./claims", "./api/v1alpha1"}),
		reaches: []string{"net/http", "testing", "regexp", "github.com/prometheus/", "github.com/containernetworking/cni/libcni"},
	},
	{
		pkg: "./cmd/tenure", why: "it runs once for every pod: it starts within milliseconds, and holds no credentials",
		never:   join(kubernetes, []string{"./ipam/node/agent", "./ipam/kube", "./claims", "./api/v1alpha1"}),
		reaches: []string{"net/http", "testing", "regexp", "github.com/prometheus/"},
	},
	{
		pkg: "./cmd/tenured", why: "programs wire packages, not each other",
		never: []string{"./cmd", "./claims"}, but: []string{"./cmd/tenured/daemon"}, reaches: []string{"testing"},
	},
	{
		pkg: "./cmd/kubectl-tenure", why: "programs wire packages, not each other",
		never: []string{"./cmd/tenure", "./cmd/tenure-attach", "./cmd/tenure-controller", "./cmd/tenured"}, reaches: []string{"testing"},
	},
	{
		pkg: "./cmd/tenure-controller", why: "programs wire packages, not each other; the controller has no node",
		never: join(bolt, cni, []string{"./cmd", "./ipam/node/agent", "./ipam/node/store", "./ipam/agentapi"}), but: []string{"./cmd/tenure-controller/controller"}, reaches: []string{"testing"},
	},
}

// openstack holds for every package that is not a test, but those in speakers. Of these, the
// first alone says anything to it.
var openstack = rule{
	pkg: "all but the controller", why: "the controller alone has OpenStack's credentials, and one package of it speaks to OpenStack",
	never: []string{"github.com/gophercloud/"},
}

// speakers are where OpenStack's client is linked in.
var speakers = []string{"./ipam/controller/neutron", "./ipam/controller", "./claims", "./cmd/tenure-controller"}

// everywhere holds for every package that is not a test.
var everywhere = rule{
	pkg: "what ships", why: "tests and their tools do not ship",
	never: []string{"./test", "testing", "github.com/onsi/", "github.com/google/go-cmp", "sigs.k8s.io/controller-runtime/pkg/envtest"},
}

// emptyNames are names of packages that say nothing about what is in them.
var emptyNames = []string{"base", "common", "constants", "helper", "helpers", "lib", "misc", "models", "shared", "tools", "types", "util", "utils"}

func join(lists ...[]string) (all []string) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

// importPath spells a rule's path as an import path.
func importPath(p string) string {
	if len(p) > 1 && p[:2] == "./" {
		return programs.Module + p[1:]
	}
	return p
}
