package certificate

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// write puts a pair where the kubelet does.
func write(t *testing.T, dir string, p Pair) {
	t.Helper()
	for name, text := range map[string][]byte{"tls.crt": p.Cert, "tls.key": p.Key} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func newPair(t *testing.T, now time.Time) Pair {
	t.Helper()
	p, err := Make("ns", now)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestServes: who trusts the certificate takes it, also one that was made anew while it is served,
// and also who trusts the earlier one besides.
func TestServes(t *testing.T) {
	f := Files{Dir: t.TempDir()}
	if _, err := f.Get(nil); err == nil || !strings.Contains(err.Error(), Name) {
		t.Errorf("without a file: %v; want the Secret's name", err)
	}
	var trusted []byte
	for range 2 {
		p := newPair(t, time.Now())
		write(t, f.Dir, p)
		trusted = append(p.Cert, trusted...)
		got, err := f.Get(nil)
		if err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(trusted)
		if _, err := got.Leaf.Verify(x509.VerifyOptions{DNSName: "tenure-controller-webhook.ns.svc", Roots: roots}); err != nil {
			t.Error(err)
		}
	}
}

// TestEnd: the end of a certificate is told by the metric, and by the log in its last weeks.
func TestEnd(t *testing.T) {
	f := Files{Dir: t.TempDir()}
	if got := testutil.ToFloat64(f.Metric()); got != 0 {
		t.Errorf("without a certificate the metric is %v; want 0", got)
	}
	now := time.Now().Truncate(time.Second)
	p := newPair(t, now)
	write(t, f.Dir, p)
	end, err := End(append(p.Cert, newPair(t, now.Add(-time.Hour)).Cert...))
	if err != nil || !end.Equal(now.Add(valid)) {
		t.Errorf("it ends %v, %v; want %v", end, err, now.Add(valid))
	}
	if got := testutil.ToFloat64(f.Metric()); got != float64(end.Unix()) {
		t.Errorf("the metric is %v; want %v", got, end.Unix())
	}
	if got := f.fault(now); got != "" {
		t.Errorf("a new certificate: %s", got)
	}
	if got := f.fault(end.Add(-Soon + time.Hour)); !strings.Contains(got, "ends on "+end.Format(time.DateOnly)) {
		t.Errorf("a certificate that ends soon: %q; want its end", got)
	}
	if want := end.AddDate(0, 0, -365).Format(time.DateOnly); p.RenewAfter != want {
		t.Errorf("it is to be renewed after %s; want %s", p.RenewAfter, want)
	}
	for _, text := range []string{"", "x", string(p.Key)} {
		if _, err := End([]byte(text)); err == nil {
			t.Errorf("%q has an end", text)
		}
	}
}

// TestEndOfAnEarlierVersion: what the API server trusts of an earlier version is an authority for
// ten years, whose certificate ends after one.
func TestEndOfAnEarlierVersion(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now().Truncate(time.Second)
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "tenure-controller-webhook-ca"}, NotBefore: begin, NotAfter: begin.AddDate(10, 0, 0), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	end, err := End(pem.EncodeToMemory(&pem.Block{Type: pemType, Bytes: der}))
	if want := begin.Add(365 * 24 * time.Hour); err != nil || !end.Equal(want) {
		t.Errorf("it ends %v, %v; want %v", end, err, want)
	}
}

// TestWatchSaysItOnce: a fault that stays is one line of the log.
func TestWatchSaysItOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		f := Files{Dir: t.TempDir(), Log: slog.New(slog.NewTextHandler(&log, nil))}
		ctx, cancel := context.WithTimeout(t.Context(), 10*recheckAfter)
		defer cancel()
		if err := f.Watch(ctx); err != nil {
			t.Error(err)
		}
		if got := strings.Count(log.String(), "kubectl tenure certificate"); got != 1 {
			t.Errorf("it is said %d times in ten looks; want once:\n%s", got, &log)
		}
	})
}
