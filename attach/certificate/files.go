package certificate

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Files are the files of the Secret, in the directory where it is mounted. They are read at each
// use: the kubelet brings a certificate that was made anew while the controller runs.
type Files struct {
	Dir string
	Log *slog.Logger
}

// recheckAfter is how often Watch looks at the certificate.
const recheckAfter = time.Minute

func (f Files) cert() string { return filepath.Join(f.Dir, "tls.crt") }

// Get returns the certificate for a TLS connection.
func (f Files) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(f.cert(), filepath.Join(f.Dir, "tls.key"))
	if err != nil {
		return nil, fmt.Errorf("read the certificate of the webhooks, from Secret %s: %w", Name, err)
	}
	return &pair, nil
}

// Watch logs, until ctx ends, that there is no certificate, or that it will end soon.
func (f Files) Watch(ctx context.Context) error {
	for last := ""; ; {
		said := f.fault(time.Now())
		if said != "" && said != last {
			f.Log.WarnContext(ctx, "the webhooks for pods that list PodNetworks", "fault", said,
				"remedy", "helm upgrade, or kubectl tenure certificate: see docs/howto/pod-networks.md")
		}
		last = said
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(recheckAfter):
		}
	}
}

// fault returns what is wrong with the certificate at a time; empty: nothing.
func (f Files) fault(now time.Time) string {
	pair, err := f.Get(nil)
	switch {
	case err != nil:
		return err.Error() + "; until it is there, pods are created without them, and judged on their nodes"
	case now.After(pair.Leaf.NotAfter.Add(-Soon)):
		return fmt.Sprintf("their certificate ends on %s, and pods are created without them then", pair.Leaf.NotAfter.Format(time.DateOnly))
	}
	return ""
}

// Metric returns the metric of when the certificate ends.
func (f Files) Metric() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tenure_webhook_certificate_end_seconds", Help: "When the certificate of the webhooks ends, in seconds since 1970; 0 where there is none.",
	}, func() float64 {
		text, err := os.ReadFile(f.cert())
		if err != nil {
			return 0
		}
		end, err := End(text)
		if err != nil {
			return 0
		}
		return float64(end.Unix())
	})
}
