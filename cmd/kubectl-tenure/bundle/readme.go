package bundle

import (
	"fmt"
	"strings"
)

// readme says what is in a bundle, and what is not.
const readme = `A bundle of Tenure, made by kubectl tenure bundle (version %s)
at %s by the cluster's clock, of %s.

What is in it
-------------
errors.txt         what could not be had, and why
versions.yaml      kubectl-tenure, Kubernetes, and the images that agents and controllers run
check.json         what kubectl tenure check has found. Its fields: docs/reference/kubectl-tenure.md
store-checks.txt   what the agents' checks of their stores have found
objects/           pools, leases, sub-leases, reservations, PodNetworks and their attachments, network
                   definitions, IPAMClaims; registrations (heartbeats); the agents' DaemonSet, the
                   controllers' Deployment, and the configuration of tenure-attach
pods.yaml          pods that select networks: name, node, phase, conditions, annotations of networks
events.yaml        Events about these, about all in objects/, and about agents and controllers
nodes.yaml         versions, taints and conditions of the Nodes
logs/              agents and controllers: the last %v, and of each log the last %d bytes.
                   *.previous.log is of the container before, where one has restarted%s
metrics/           /metrics of agents and controllers
A list of more than 500 objects is in several files. One that took long may have an object twice.

What is left out, and how
-------------------------
- metadata.managedFields, and all annotations but those of tenure.dev, k8s.v1.cni.cncf.io and
  openstack.org
- of pods all but the above, and Secrets, which are not read
- values of environment variables
- in objects, and in JSON within them such as the config of a network definition: the value of each
  key whose name has passwd, password, passphrase, secret, token, credential, authorization, cookie,
  kubeconfig (but for a path), or api, private, access, shared, signing, encryption, client, ssh or
  auth before key. In JSON also of key, pass, pwd, pin, psk, auth, bearer, and of names that end
  with key, psk or pwd; of {"name": "PASSWORD", "value": …}; of what follows such a flag (--password)
- a config that is no JSON, as a whole: its keys cannot be told
- in all texts, logs too: private keys in PEM, JSON web tokens, user and password in URLs, what
  follows "bearer", and name=value or name: value where the name is one of the first list
- in all texts: each value of %d characters or more that was left out of an object
Instead of a value stands %s. What has none of these signs is not known to be secret, and is
there: look before you give the bundle away. Names of namespaces, pods and nodes, and addresses, are
what a fault is found by, and are in it.
`

// addReadme adds the page that says what is in the bundle.
func (b *bundle) addReadme() error {
	of, which := "the whole cluster", ""
	if b.namespace != "" {
		of = "namespace " + b.namespace + " alone: there are no leases, Nodes, logs, metrics, checks and findings"
	}
	if len(b.nodes) > 0 {
		which = ".\n                   Of agents those of node " + strings.Join(b.nodes, ", ") + " alone"
	}
	text := fmt.Sprintf(readme, b.version, b.Now().UTC().Format("2006-01-02 15:04:05Z"), of, b.since, b.limit, which, shortest, leftOut)
	return b.out.add("README", []byte(text))
}
