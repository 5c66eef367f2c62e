// Package ready keeps the meta-plugin's configuration where the runtime finds it,
// from the moment that the default network is ready and only while it is (NPWG v1.3,
// section 6.1): before, no pod could be attached to it, and the node is not to be
// called ready.
package ready

import (
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
	// Record is the path of a file of the Keeper's own, outside of Dir, for what it has to know
	// when the file is not there, or after a restart of the agent.
	Record string
	// Every is how often it is looked.
	Every time.Duration
}

// DefaultConfig returns a Config without a Source.
func DefaultConfig() Config {
	return Config{Dir: plan.DefaultConfDir, Name: "00-tenure.conflist", Every: time.Second}
}

// Validate reports every fault of c.
func (c Config) Validate() error {
	var errs []error
	for name, path := range map[string]string{"Source": c.Source, "Dir": c.Dir, "Record": c.Record} {
		if !filepath.IsAbs(path) {
			errs = append(errs, fmt.Errorf("%s is %q, must be an absolute path", name, path))
		}
	}
	if c.Name != filepath.Base(c.Name) || !slices.Contains(plan.RuntimeExtensions, filepath.Ext(c.Name)) {
		errs = append(errs, fmt.Errorf("Name is %q, must be a file's name that ends in one of %s", c.Name, strings.Join(plan.RuntimeExtensions, ", ")))
	}
	if c.Source == filepath.Join(c.Dir, c.Name) {
		errs = append(errs, fmt.Errorf("Source is %q, the very file that is written and removed", c.Source))
	}
	if c.Every <= 0 {
		errs = append(errs, fmt.Errorf("Every is %v, must be positive", c.Every))
	}
	return errors.Join(errs...)
}

// Definitions tells of NetworkAttachmentDefinitions.
type Definitions interface {
	// Definition returns a definition, which says that it is Missing where there is none; named
	// says that it is the configuration that names it. It fails where that cannot be told now,
	// as while the API server is away.
	Definition(ctx context.Context, ref facts.Ref, named bool) (facts.Definition, error)
}

// Warn tells whoever looks after the node, if that can be told now.
type Warn func(reason, message string) (told bool)

// A Keeper keeps one file. Make one with [New].
type Keeper struct {
	cfg         Config
	definitions Definitions
	warn        Warn
	turned      func()
	log         *slog.Logger
	said        string      // the last verdict that was logged
	misses      int         // looks in a row that have found the network unready
	garbled     int         // looks in a row that have found what is no configuration in the file's place
	before      string      // the file that came before this one at the last look
	first       atomic.Bool // the file is there, and the one that the runtime takes
	record      record
	written     os.FileInfo           // of the file, when it was last seen to be there
	rival       atomic.Pointer[rival] // what another program did to the file last
	warned      map[string]time.Time  // when what was told last, by reason and message
	metrics     *prometheus.Registry
	lost        prometheus.Counter // how often others have taken the file away
}

// New returns a Keeper. It does no I/O and starts nothing. turned is called when a look has found
// that [Keeper.Before] answers otherwise than at the look before.
func New(cfg Config, definitions Definitions, warn Warn, turned func(), log *slog.Logger) (*Keeper, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	k := &Keeper{cfg: cfg, definitions: definitions, warn: warn, turned: turned, log: log, warned: map[string]time.Time{}, metrics: prometheus.NewRegistry()}
	k.metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tenure_attach_configured", Help: "1 while the meta-plugin's configuration is what the runtime finds first: the default network is ready.",
	}, func() float64 { return map[bool]float64{true: 1}[k.first.Load()] }))
	k.lost = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "tenure_attach_configuration_lost_total", Help: "How often another program has removed, renamed or overwritten the meta-plugin's configuration.",
	})
	k.metrics.MustRegister(k.lost)
	return k, nil
}

// Metrics returns the collectors of the Keeper. The caller registers them as one.
func (k *Keeper) Metrics() prometheus.Collector { return k.metrics }

// Run keeps the file until ctx ends, and then leaves it as it is: an agent that is
// being upgraded must not make its node unready.
func (k *Keeper) Run(ctx context.Context) error {
	if err := atomicfile.Sweep(k.cfg.Dir, k.temporary(), time.Now()); err != nil {
		k.log.WarnContext(ctx, "leftovers in the runtime's directory not removed", "dir", k.cfg.Dir, "error", err)
	}
	if err := k.load(); err != nil {
		k.log.WarnContext(ctx, "what other programs had appended to the configuration is not known", "error", err)
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
		if !e.IsDir() && slices.Contains(plan.RuntimeExtensions, filepath.Ext(e.Name())) {
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
	o := k.judge(ctx)
	err := k.refuseAnothers()
	mine := err == nil
	switch {
	case !mine:
	case o.verdict == readyNow:
		k.misses = 0
		err = k.install(o)
	case o.verdict == unready:
		// Once is not enough: others write their files in place, and for a moment
		// there is half of one.
		if k.misses++; k.misses > 1 {
			err = k.putAway()
		}
	}
	why := o.why
	if err != nil {
		why = err.Error()
	}
	_, missing := os.Lstat(k.path())
	there := missing == nil && mine
	level, before := slog.LevelInfo, k.Before()
	if !mine {
		level = slog.LevelError
	}
	if before != k.before {
		k.before = before
		k.turned()
	}
	if there && before != "" {
		level, why = slog.LevelWarn, fmt.Sprintf("%s, and without effect: %s", why, k.notFirst(before))
		k.tell(ReasonNotFirst, k.cfg.Dir+": "+k.notFirst(before))
	}
	k.first.Store(there && before == "")
	if why != k.said {
		k.log.Log(ctx, level, "default network looked at", "configuration", k.path(), "installed", there, "verdict", why)
		k.said = why
	}
}

// notFirst says that the runtime takes another file.
func (k *Keeper) notFirst(before string) string {
	return fmt.Sprintf("the runtime takes %s, which comes before %s in alphabetical order. Of Multus and tenure-attach a node has one", before, k.cfg.Name)
}

func (k *Keeper) path() string { return filepath.Join(k.cfg.Dir, k.cfg.Name) }

// An opinion is what a look has shown.
type opinion struct {
	verdict verdict
	why     string
	text    []byte             // the configuration to install
	conf    *plan.Config       // what the plugin makes of it
	defined []facts.Definition // that of the default network, where one has it
}

// judge reads the configuration and says whether its default network is ready, and
// why, or why not.
func (k *Keeper) judge(ctx context.Context) (o opinion) {
	text, err := os.ReadFile(k.cfg.Source)
	if err != nil {
		return opinion{why: fmt.Sprintf("the configuration to install cannot be read: %v", err)}
	}
	o.text = text
	if o.conf, err = plan.ParseInstalled(text); err != nil {
		return opinion{why: fmt.Sprintf("%s: %v", k.cfg.Source, err)}
	}
	if k.cfg.AtOnce {
		o.verdict, o.why = readyNow, "installed without a look"
		return o
	}
	k.network(ctx, &o)
	return o
}

// network says in o whether its default network is ready, and why, or why not: the
// file is there that says so, if the configuration names one, and so is its own.
func (k *Keeper) network(ctx context.Context, o *opinion) {
	if file := o.conf.ReadinessFile; file != "" {
		if _, err := os.Stat(file); err != nil {
			o.verdict, o.why = unready, fmt.Sprintf("not ready: %v", err)
			return
		}
	}
	d, files := o.conf.Default, filesOf(o.conf)
	switch {
	case d.Inline != nil:
		o.verdict, o.why = readyNow, "ready"
		return
	case d.Path != "":
		o.verdict, o.why = found(files.Read(d.Path))
		return
	}
	namespace := d.Namespace
	if namespace == "" {
		namespace = o.conf.Namespace
		if o.verdict, o.why = found(files.Lookup(d.Name)); o.verdict == readyNow {
			return
		}
	}
	ref := facts.Ref{Namespace: namespace, Name: d.Name}
	switch def, err := k.definitions.Definition(ctx, ref, true); {
	case err != nil:
		o.verdict, o.why = unknown, fmt.Sprintf("it cannot be told whether NetworkAttachmentDefinition %s exists", ref)
	case def.Missing == "":
		o.verdict, o.why, o.defined = readyNow, "ready", []facts.Definition{def}
	case d.Namespace == "":
		o.verdict, o.why = unready, fmt.Sprintf("not ready: there is neither NetworkAttachmentDefinition %s nor a configuration named %s in %s", ref, d.Name, o.conf.ConfDir)
	default:
		o.verdict, o.why = unready, fmt.Sprintf("not ready: there is no NetworkAttachmentDefinition %s", ref)
	}
}

// filesOf are the host's files as c looks for networks in them.
func filesOf(c *plan.Config) plan.Files { return plan.Files{Root: os.DirFS("/"), ConfDir: c.ConfDir} }

// found judges by what a lookup on disk has found.
func found(_ json.RawMessage, err error) (verdict, string) {
	if err != nil {
		return unready, fmt.Sprintf("not ready: %v", err)
	}
	return readyNow, "ready"
}
