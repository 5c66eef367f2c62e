package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
)

// sign signs the sums of a release by the private key in a file: ECDSA on the curve P-256, which
// openssl and cosign can both verify.
func sign(dir, keyFile string) error {
	key, err := readKey(keyFile)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(dir, sumsFile))
	if err != nil {
		return err
	}
	sum := sha256.Sum256(text)
	// Without a source of chance the same sums have the same signature (RFC 6979).
	signature, err := key.Sign(nil, sum[:], crypto.SHA256)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, signatureFile), signature, 0o644)
}

// readKey reads a private key as openssl writes it.
func readKey(file string) (*ecdsa.PrivateKey, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read RELEASE_KEY: %w", err)
	}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		var key any
		switch block.Type {
		case "EC PRIVATE KEY":
			key, err = x509.ParseECPrivateKey(block.Bytes)
		case "PRIVATE KEY":
			key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
		default: // openssl writes the curve before the key
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("RELEASE_KEY %s: %w", file, err)
		}
		if k, ok := key.(*ecdsa.PrivateKey); ok && k.Curve == elliptic.P256() {
			return k, nil
		}
	}
	return nil, fmt.Errorf("RELEASE_KEY %s must be a private key of ECDSA on P-256, in PEM and without a password: openssl ecparam -name prime256v1 -genkey -noout -out release.key", file)
}
