package neutron

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/config/clouds"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/tokens"
	"sigs.k8s.io/yaml"
)

// Config says which Neutron, as whom, and how long it may take.
type Config struct {
	// Clouds is the text of a clouds.yaml. An entry with "auth_type: none" has the URL of
	// Neutron in "auth: {endpoint: …}" and sends no credentials. Files that other entries
	// name (cacert, cert, key) are read from this machine.
	Clouds []byte
	// Cloud is the entry of Clouds that counts.
	Cloud string
	// Cluster tells ports of this cluster from those of others in the same project: a name
	// that no other cluster has and that never changes, such as the UID of a namespace. It
	// must not be empty.
	Cluster string

	CallTimeout time.Duration // of one request
	Timeout     time.Duration // of one call of a method
	Retries     int           // of one call of a method
}

// DefaultConfig returns a Config without clouds and cluster. A call of a method with it ends
// within half a minute.
func DefaultConfig() Config {
	return Config{CallTimeout: 10 * time.Second, Timeout: 30 * time.Second, Retries: 4}
}

// validate reports every fault of c but those of Clouds, which [New] reads.
func (c Config) validate() error {
	var errs []error
	if c.Cluster == "" {
		errs = append(errs, errors.New("Cluster is empty, must be the name that no other cluster has"))
	}
	if c.CallTimeout <= 0 || c.Timeout < c.CallTimeout {
		errs = append(errs, fmt.Errorf("CallTimeout is %v and Timeout %v, must be positive, and Timeout no shorter", c.CallTimeout, c.Timeout))
	}
	if c.Retries < 0 {
		errs = append(errs, fmt.Errorf("Retries is %d, must not be negative", c.Retries))
	}
	return errors.Join(errs...)
}

// Client talks to one Neutron as one user. Its methods may be called concurrently.
type Client struct {
	cfg  Config
	http http.Client

	endpoint string // of Neutron, where nobody is asked who it is
	auth     gophercloud.AuthOptions
	where    gophercloud.EndpointOpts

	// login is held by who logs in; then service is set, and stays.
	login   chan struct{}
	service *gophercloud.ServiceClient
}

// New returns a client. It reads cfg and makes no request: the first method that is called
// logs in, and the token is renewed when it ends.
func New(cfg Config) (*Client, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	c := &Client{cfg: cfg, login: make(chan struct{}, 1)}
	open, err := c.withoutLogin()
	if err != nil {
		return nil, err
	}
	var security *tls.Config
	if !open {
		c.auth, c.where, security, err = clouds.Parse(clouds.WithCloudsYAML(strings.NewReader(string(cfg.Clouds))), clouds.WithCloudName(cfg.Cloud))
		if err != nil {
			return nil, fmt.Errorf("clouds.yaml, cloud %q: %w", cfg.Cloud, err)
		}
		if c.auth.IdentityEndpoint == "" {
			return nil, fmt.Errorf("clouds.yaml, cloud %q: auth.auth_url is empty, must be the URL of Keystone", cfg.Cloud)
		}
		c.auth.AllowReauth = true
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = security
	transport.MaxIdleConnsPerHost = 16
	// What gophercloud asks without a context ends as well.
	c.http = http.Client{Transport: transport, Timeout: cfg.Timeout}
	return c, nil
}

// withoutLogin reports whether the cloud is one to which nobody logs in, and keeps its
// endpoint. Gophercloud does not know such clouds.
func (c *Client) withoutLogin() (bool, error) {
	var file struct {
		Clouds map[string]struct {
			AuthType string `json:"auth_type"`
			Auth     struct{ Endpoint string }
		}
	}
	if err := yaml.Unmarshal(c.cfg.Clouds, &file); err != nil {
		return false, fmt.Errorf("clouds.yaml: %w", err)
	}
	cloud, ok := file.Clouds[c.cfg.Cloud]
	switch {
	case !ok:
		return false, fmt.Errorf("clouds.yaml has no cloud %q", c.cfg.Cloud)
	case cloud.AuthType != "none":
		return false, nil
	case cloud.Auth.Endpoint == "":
		return false, fmt.Errorf("clouds.yaml, cloud %q: auth.endpoint is empty, must be the URL of Neutron where auth_type is none", c.cfg.Cloud)
	}
	c.endpoint = gophercloud.NormalizeURL(cloud.Auth.Endpoint)
	return true, nil
}

// owner is the device_owner of our ports.
func (c *Client) owner() string { return "tenure:" + c.cfg.Cluster }

// network returns the client of the network service, once somebody has logged in. While one
// does, the others wait.
func (c *Client) network(ctx context.Context) (*gophercloud.ServiceClient, error) {
	select {
	case c.login <- struct{}{}:
		defer func() { <-c.login }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if c.service != nil {
		return c.service, nil
	}
	if c.endpoint != "" {
		provider := &gophercloud.ProviderClient{HTTPClient: c.http}
		c.service = &gophercloud.ServiceClient{ProviderClient: provider, Endpoint: c.endpoint, ResourceBase: c.endpoint + "v2.0/", Type: "network"}
		return c.service, nil
	}
	provider, err := openstack.NewClient(c.auth.IdentityEndpoint)
	if err != nil {
		return nil, err
	}
	provider.HTTPClient = c.http
	if err := openstack.Authenticate(ctx, provider, c.auth); err != nil {
		return nil, err
	}
	service, err := openstack.NewNetworkV2(provider, c.where)
	if err != nil {
		return nil, err
	}
	c.service = service
	return service, nil
}

// project returns the ID of the project that the credentials are of; "" where nobody is asked who
// it is.
func (c *Client) project(ctx context.Context) (string, error) {
	service, err := c.network(ctx)
	if err != nil {
		return "", explain("find the project of the credentials", err)
	}
	if token, ok := service.GetAuthResult().(tokens.CreateResult); ok {
		if p, err := token.ExtractProject(); err == nil && p != nil {
			return p.ID, nil
		}
	}
	return "", nil
}
