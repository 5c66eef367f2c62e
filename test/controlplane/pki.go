package controlplane

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
)

// validity spans clock jumps that tests make, in both directions.
const validity = 10 * 365 * 24 * time.Hour

// pki is the certificate authority of one control plane.
type pki struct {
	dir   string
	ca    *x509.Certificate
	caKey crypto.Signer
}

// pair is a certificate and its private key, as PEM.
type pair struct{ cert, key []byte }

// newPKI makes a certificate authority, the servers' certificate and the key
// that signs service account tokens, all as files in dir. Others are the addresses that
// servers have beside the loopback's.
func newPKI(dir string, others ...string) (*pki, error) {
	p := &pki{dir: dir}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "control plane of a test"},
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	ca, err := p.issue(template)
	if err != nil {
		return nil, err
	}
	addresses := []net.IP{net.ParseIP(localhost)}
	for _, address := range others {
		addresses = append(addresses, net.ParseIP(address))
	}
	server, err := p.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "server"},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost", "kubernetes.default.svc"},
		IPAddresses: addresses,
	})
	if err != nil {
		return nil, err
	}
	account, err := p.issue(&x509.Certificate{Subject: pkix.Name{CommonName: "service accounts"}})
	if err != nil {
		return nil, err
	}
	for name, content := range map[string][]byte{
		"ca.crt":     ca.cert,
		"server.crt": server.cert, "server.key": server.key,
		// The API server takes the public key out of the certificate.
		"service-account.pub": account.cert, "service-account.key": account.key,
	} {
		if err := os.WriteFile(p.path(name), content, 0o600); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *pki) path(name string) string { return filepath.Join(p.dir, name) }

// issue completes template and signs it, with its own key if there is no
// authority yet: then it becomes the authority.
func (p *pki) issue(template *x509.Certificate) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return pair{}, err
	}
	now := time.Now()
	template.SerialNumber, template.NotBefore, template.NotAfter = serial, now.Add(-validity), now.Add(validity)
	parent, signer := p.ca, p.caKey
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return pair{}, fmt.Errorf("sign certificate of %s: %w", template.Subject, err)
	}
	if p.ca == nil {
		if p.ca, err = x509.ParseCertificate(der); err != nil {
			return pair{}, err
		}
		p.caKey = key
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return pair{}, err
	}
	return pair{
		cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		key:  pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}),
	}, nil
}

// client returns the certificate of the user name in groups.
func (p *pki) client(name string, groups ...string) (pair, error) {
	return p.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: name, Organization: groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// clientConfig returns a configuration for a client of the API server at url
// that is the user name in groups.
func (p *pki) clientConfig(url, name string, groups ...string) (*rest.Config, error) {
	client, err := p.client(name, groups...)
	if err != nil {
		return nil, err
	}
	return &rest.Config{
		Host: url,
		QPS:  -1, // no client-side throttling
		TLSClientConfig: rest.TLSClientConfig{
			CAData:   pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.ca.Raw}),
			CertData: client.cert,
			KeyData:  client.key,
		},
	}, nil
}
