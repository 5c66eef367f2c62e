// Package certificate is about the certificate that the webhooks for pods are served with. Who
// installs Tenure makes it: Helm, cert-manager, or kubectl tenure certificate. The controllers
// read it, and have no right to change it, or whom the API server trusts.
package certificate

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"
)

const (
	// Name is the name of the Secret that has the certificate, and of the Service by which the API
	// server reaches the webhooks.
	Name = "tenure-controller-webhook"
	// RenewAfter is the annotation of the Secret with the day after which Helm makes the
	// certificate anew.
	RenewAfter = "tenure.dev/renew-after"
	// AuthorityKey is the key of the Secret's data with the private key of an authority, where
	// controllers of an earlier version have made the certificate.
	AuthorityKey = "ca.key"
)

// Of these controllers: their authority's name, and how long a certificate was valid that they made
// together with it.
const (
	earlierAuthority = "tenure-controller-webhook-ca"
	earlierValid     = 365 * 24 * time.Hour
)

const (
	valid = 10 * 365 * 24 * time.Hour
	// renewBefore is how long before its end a certificate is to be made anew.
	renewBefore = 365 * 24 * time.Hour
	// Soon is how long before its end a certificate is spoken of. cert-manager has made the next
	// one by then.
	Soon = 14 * 24 * time.Hour
)

const pemType = "CERTIFICATE"

// A Pair is a certificate and its private key, as PEM.
type Pair struct {
	Cert, Key []byte
	// RenewAfter is the value of the annotation of that name.
	RenewAfter string
}

// Make makes the certificate for the webhooks of controllers in a namespace. It is its own
// authority: nobody has a key with which he could make another one that is trusted.
func Make(namespace string, now time.Time) (Pair, error) {
	p, err := makePair(Name+"."+namespace+".svc", now)
	if err != nil {
		return Pair{}, fmt.Errorf("make a certificate: %w", err)
	}
	return p, nil
}

func makePair(host string, now time.Time) (p Pair, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return p, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return p, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: host}, DNSNames: []string{host},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(valid),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return p, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return p, err
	}
	return Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: pemType, Bytes: der}), Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
		RenewAfter: template.NotAfter.Add(-renewBefore).Format(time.DateOnly),
	}, nil
}

// End returns when a certificate ends: of several that are written one after the other, the first.
// Of the authority that controllers of an earlier version made it is when the certificate ends that
// they made with it.
func End(text []byte) (time.Time, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != pemType {
		return time.Time{}, errors.New("it does not begin with a certificate")
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}, err //nolint:wrapcheck // the caller says which certificate
	}
	if c.Subject.CommonName == earlierAuthority {
		return c.NotBefore.Add(earlierValid), nil
	}
	return c.NotAfter, nil
}
