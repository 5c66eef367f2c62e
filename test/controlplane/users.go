package controlplane

import (
	"context"
	"fmt"
	"slices"

	authentication "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// AddUser returns a configuration for clients that are the user name in
// groups. The user has the rights that RBAC and the node authorizer give;
// "system:masters" is the group that has all of them.
func (cp *ControlPlane) AddUser(name string, groups ...string) (*rest.Config, error) {
	return cp.pki.clientConfig(cp.admin.Host, name, slices.Clone(groups)...)
}

// AddNode returns a configuration for clients that are the kubelet of node. It
// does not create the Node.
func (cp *ControlPlane) AddNode(node string) (*rest.Config, error) {
	return cp.AddUser("system:node:"+node, "system:nodes")
}

// ServiceAccount returns a configuration for clients that are the service
// account name, with a token that the API server issues for an hour. Bound, if
// not nil, is the existing object that the token ends with: a Pod on a node, or
// a Node, puts the node's name into the token, where policies find it.
func (cp *ControlPlane) ServiceAccount(ctx context.Context, namespace, name string, bound *authentication.BoundObjectReference) (*rest.Config, error) {
	client, err := kubernetes.NewForConfig(cp.admin)
	if err != nil {
		return nil, err
	}
	issued, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name,
		&authentication.TokenRequest{Spec: authentication.TokenRequestSpec{BoundObjectRef: bound}}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("issue token for service account %s/%s: %w", namespace, name, err)
	}
	c := rest.AnonymousClientConfig(cp.admin)
	c.BearerToken = issued.Status.Token
	return c, nil
}

// Kubeconfig writes a kubeconfig with all rights to path.
func (cp *ControlPlane) Kubeconfig(path string) error { return WriteKubeconfig(path, cp.admin) }

// WriteKubeconfig writes c to path in the form that kubectl and the control
// plane's programs read.
func WriteKubeconfig(path string, c *rest.Config) error {
	const name = "test"
	return clientcmd.WriteToFile(clientcmdapi.Config{
		CurrentContext: name,
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: c.Host, CertificateAuthorityData: c.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {ClientCertificateData: c.CertData, ClientKeyData: c.KeyData, Token: c.BearerToken}},
	}, path)
}
