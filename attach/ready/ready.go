// Package ready keeps the meta-plugin's configuration where the runtime finds it,
// from the moment that the default network is ready and only while it is (NPWG v1.3,
// section 6.1): before, no pod could be attached to it, and the node is not to be
// called ready.
package ready

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tenure-ipam/tenure/attach/facts"
	"github.com/tenure-ipam/tenure/attach/plan"
	"github.com/tenure-ipam/tenure/ipam/atomicfile"
)

// Config configures a [Keeper].
type Config struct {
	// Source is the path of the configuration to install: a list, or a single
	// configuration, with the plugin tenure-attach in it. It may change at any time.
	Source string
	// Dir is the runtime's directory of configurations, and Name the file's name in
	// it. The runtime takes the first name in alphabetical order.
	Dir, Name string
	// AtOnce installs without waiting: the plugin itself then holds pods up until the
	// configuration's readinessindicatorfile is there (6.1.2).
	AtOnce bool
	// Every is how often it is looked.
	Every time.Duration
}

// DefaultConfig returns a Config without a Source.
func DefaultConfig() Config {
	return Config{Dir: plan.DefaultConfDir, Name: "00-tenure.conflist", Every: time.Second}
}

// extensions are those of files that a runtime reads.
var extensions = []string{".conflist", ".conf", ".json"}

// Validate reports every fault of c.
func (c Config) Validate() error {
	var errs []error
	for name, path := range map[string]string{"Source": c.Source, "Dir": c.Dir} {
		if !filepath.IsAbs(path) {
			errs = append(errs, fmt.Errorf("%s is %q, must be an absolute path", name, path))
		}
	}
	if c.Name != filepath.Base(c.Name) || !slices.Contains(extensions, filepath.Ext(c.Name)) {
		errs = append(errs, fmt.Errorf("Name is %q, must be a file's name that ends in one of %s", c.Name, strings.Join(extensions, ", ")))
	}
	if c.Source == filepath.Join(c.Dir, c.Name) {
		errs = append(errs, fmt.Errorf("Source is %q, the very file that is written and removed", c.Source))
	}
	if c.Every <= 0 {
		errs = append(errs, fmt.Errorf("Every is %v, must be positive", c.Every))
	}
	return errors.Join(errs...)
}

// Definitions tells which NetworkAttachmentDefinitions there are.
type Definitions interface {
	// Exists reports whether there is a definition of that name. known is false where
	// that cannot be told now, as while the API server is away.
	Exists(ctx context.Context, ref facts.Ref) (exists, known bool)
}

// A Keeper keeps one file. Make one with [New].
type Keeper struct {
	cfg         Config
	definitions Definitions
	log         *slog.Logger
	said        string      // the last verdict that was logged
	misses      int         // looks in a row that have found the network unready
	first       atomic.Bool // the file is there, and the one that the runtime takes
	metric      prometheus.GaugeFunc
}

// New returns a Keeper. It does no I/O and starts nothing.
func New(cfg Config, definitions Definitions, log *slog.Logger) (*Keeper, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	k := &Keeper{cfg: cfg, definitions: definitions, log: log}
	k.metric = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tenure_attach_configured", Help: "1 while the meta-plugin's configuration is what the runtime finds first: the default network is ready.",
	}, func() float64 { return map[bool]float64{true: 1}[k.first.Load()] })
	return k, nil
}

// Metrics returns the collector of the Keeper. The caller registers it.
func (k *Keeper) Metrics() prometheus.Collector { return k.metric }

// Run keeps the file until ctx ends, and then leaves it as it is: an agent that is
// being upgraded must not make its node unready.
func (k *Keeper) Run(ctx context.Context) error {
	if err := atomicfile.Sweep(k.cfg.Dir, k.temporary(), time.Now()); err != nil {
		k.log.WarnContext(ctx, "leftovers in the runtime's directory not removed", "dir", k.cfg.Dir, "error", err)
	}
	tick := time.NewTicker(k.cfg.Every)
	defer tick.Stop()
	for {
		k.look(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Before returns the name of the first file that a runtime reads before that of the Keeper, such as
// Multus's, "" if there is none: then the runtime calls another plugin. Safe for concurrent use.
func (k *Keeper) Before() string {
	entries, _ := os.ReadDir(k.cfg.Dir) // sorted by name; what cannot be read is not said to be there
	for _, e := range entries {
		if e.Name() >= k.cfg.Name {
			break
		}
		if !e.IsDir() && slices.Contains(extensions, filepath.Ext(e.Name())) {
			return e.Name()
		}
	}
	return ""
}

// temporary is the name of a file that is about to be installed. No runtime reads it.
func (k *Keeper) temporary() string { return "." + k.cfg.Name + ".new" }

// verdict is what a look has shown.
type verdict uint8

// The verdicts.
const (
	unknown  verdict = iota // it cannot be told: nothing is changed
	unready                 // the file must not be there
	readyNow                // it must
)

// look looks once, and does what is due.
func (k *Keeper) look(ctx context.Context) {
	text, v, why := k.judge(ctx)
	var err error
	switch v {
	case readyNow:
		k.misses = 0
		err = k.install(text)
	case unready:
		// Once is not enough: others write their files in place, and for a moment
		// there is half of one.
		if k.misses++; k.misses > 1 {
			err = atomicfile.Remove(k.path())
		}
	case unknown:
	}
	if err != nil {
		why = err.Error()
	}
	_, missing := os.Lstat(k.path())
	level, before := slog.LevelInfo, ""
	if missing == nil {
		before = k.Before()
	}
	if before != "" {
		level, why = slog.LevelWarn, fmt.Sprintf("%s, and without effect: the runtime takes %s, which comes before it in alphabetical order. Of Multus and tenure-attach a node has one", why, before)
	}
	k.first.Store(missing == nil && before == "")
	if why != k.said {
		k.log.Log(ctx, level, "default network looked at", "configuration", k.path(), "installed", missing == nil, "verdict", why)
		k.said = why
	}
}

func (k *Keeper) path() string { return filepath.Join(k.cfg.Dir, k.cfg.Name) }

// install makes text the file's, unless it is already.
func (k *Keeper) install(text []byte) error {
	if old, err := os.ReadFile(k.path()); err == nil && bytes.Equal(old, text) {
		return nil
	}
	temp := filepath.Join(k.cfg.Dir, k.temporary())
	if err := atomicfile.Remove(temp); err != nil {
		return err
	}
	return atomicfile.Create(k.path(), temp, text, func(string) {})
}

// judge reads the configuration and says whether its default network is ready, and
// why, or why not.
func (k *Keeper) judge(ctx context.Context) (text []byte, v verdict, why string) {
	text, err := os.ReadFile(k.cfg.Source)
	if err != nil {
		return nil, unknown, fmt.Sprintf("the configuration to install cannot be read: %v", err)
	}
	conf, err := plan.ParseInstalled(text)
	if err != nil {
		return nil, unknown, fmt.Sprintf("%s: %v", k.cfg.Source, err)
	}
	if k.cfg.AtOnce {
		return text, readyNow, "installed without a look"
	}
	v, why = k.network(ctx, conf)
	return text, v, why
}

// network says whether the default network of c is ready, and why, or why not: the
// file is there that says so, if c names one, and so is its configuration.
func (k *Keeper) network(ctx context.Context, c *plan.Config) (verdict, string) {
	if c.ReadinessFile != "" {
		if _, err := os.Stat(c.ReadinessFile); err != nil {
			return unready, fmt.Sprintf("not ready: %v", err)
		}
	}
	d, files := c.Default, plan.Files{Root: os.DirFS("/"), ConfDir: c.ConfDir}
	switch {
	case d.Inline != nil:
		return readyNow, "ready"
	case d.Path != "":
		return found(files.Read(d.Path))
	}
	namespace := d.Namespace
	if namespace == "" {
		namespace = c.Namespace
		if v, why := found(files.Lookup(d.Name)); v == readyNow {
			return v, why
		}
	}
	ref := facts.Ref{Namespace: namespace, Name: d.Name}
	exists, known := k.definitions.Exists(ctx, ref)
	switch {
	case !known:
		return unknown, fmt.Sprintf("it cannot be told whether NetworkAttachmentDefinition %s exists", ref)
	case !exists && d.Namespace == "":
		return unready, fmt.Sprintf("not ready: there is neither NetworkAttachmentDefinition %s nor a configuration named %s in %s", ref, d.Name, c.ConfDir)
	case !exists:
		return unready, fmt.Sprintf("not ready: there is no NetworkAttachmentDefinition %s", ref)
	}
	return readyNow, "ready"
}

// found judges by what a lookup on disk has found.
func found(_ json.RawMessage, err error) (verdict, string) {
	if err != nil {
		return unready, fmt.Sprintf("not ready: %v", err)
	}
	return readyNow, "ready"
}
