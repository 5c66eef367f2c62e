package poolspec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/tenure-ipam/tenure/allocator"
)

// ParseConfig reads the configuration that a CNI plugin gets on stdin, and
// CNI_ARGS. Its error joins one [*Fault] for each thing that is wrong.
func ParseConfig(stdin []byte, cniArgs string) (*Config, error) {
	p := parser{faults: faults{kind: ErrConfig}}
	if top, ok := p.document(stdin); ok {
		p.config(top, cniArgs)
	}
	if err := p.err(); err != nil {
		return nil, err
	}
	return &p.cfg, nil
}

// parser reads one configuration.
type parser struct {
	faults
	cfg  Config
	ipam object
	form form
	runtime
	// mark is how many faults there were before the sources were read.
	mark int
	// bridgeTakes is [Source.TakesFirst] of every source. Of the reference plugins only the bridge
	// takes an address that nobody has named, with isGateway or isDefaultGateway.
	bridgeTakes bool
}

// runtime is what "runtimeConfig" and "args" say to an IPAM plugin.
type runtime struct {
	ranges object // has ipRanges
	ips    object // has ips
	args   object // has ips
}

// isTopKey reports whether the key matters to Tenure outside "ipam". All others
// belong to the plugin that calls it.
func isTopKey(name string) bool {
	switch name {
	case "cniVersion", "name", "ipam", "runtimeConfig", "args", "prevResult",
		"allowPersistentIPs", keyAttachments, keyOldAttachments:
		return true
	default:
		return false
	}
}

// config reads a whole configuration into p.cfg. Each part reports its own
// faults, so that all of them are found.
func (p *parser) config(top object, cniArgs string) {
	p.unique(top, isTopKey)
	p.cfg.CNIVersion = p.text(top, "cniVersion")
	p.name(top)
	_ = p.flag(top, "allowPersistentIPs", false) // KubeVirt goes by it
	if raw, ok := top.get("prevResult"); ok {
		p.cfg.PrevResult = bytes.Clone(raw) // a Config shares no memory with the text
	}
	p.attachments(top)
	p.runtimeConfig(top)

	raw, ok := top.get("ipam")
	if !ok {
		p.add(top.at("ipam"), "is missing", `add "ipam": {"type": "tenure", …}`)
		return
	}
	if p.ipam, ok = p.dict(top.at("ipam"), raw); !ok {
		return
	}
	kind, _ := top.get("type")
	p.bridgeTakes = string(kind) == `"bridge"` && (isTrue(top, "isGateway") || isTrue(top, "isDefaultGateway"))
	p.cfg.OwnsGateway = p.bridgeTakes || string(kind) == `"ptp"`
	p.settings()
	p.result()
	p.keys()
	p.requested(cniArgs)
	p.sources()
	p.families()
	p.version(top)
}

func (p *parser) name(top object) {
	p.cfg.Name = p.text(top, "name")
	const remedy = `name the network, such as "storage"`
	switch {
	case p.cfg.Name == "":
		p.add(top.at("name"), "is missing", remedy)
	case !isNetworkName(p.cfg.Name):
		p.addf(top.at("name"), "use letters, digits, _, . and -, with a letter or digit first", "%q cannot be a network's name", p.cfg.Name)
	}
}

// settings reads what is neither about addresses nor about the result.
func (p *parser) settings() {
	p.text(p.ipam, "type") // who calls has looked at it; here it has to be a string
	switch mode := p.text(p.ipam, "mode"); mode {
	case "", "cluster":
	case "local":
		p.cfg.Mode = ModeLocal
	default:
		p.addf(p.ipam.at("mode"), `write "cluster" or "local"`, "%q is no mode", mode)
	}
	p.cfg.Socket = p.absolute("socket", DefaultSocket)
	p.cfg.JournalDir = p.absolute("journalDir", defaultJournalDir)
	p.cfg.DataDir = p.absolute("dataDir", defaultDataDir)
	p.cfg.ReportFull = p.flag(p.ipam, "statusWhenFull", false)

	if p.cfg.Mode == ModeLocal {
		for _, key := range []string{"socket", "journalDir"} {
			if _, ok := p.ipam.get(key); ok {
				p.add(p.ipam.at(key), "has no meaning in local mode, which has no agent", "remove it")
			}
		}
	} else if _, ok := p.ipam.get("dataDir"); ok {
		p.ignore("dataDir", "in cluster mode the agent keeps the state")
	}
}

// absolute reads the path at key.
func (p *parser) absolute(key, otherwise string) string {
	s := p.text(p.ipam, key)
	switch {
	case s == "":
		return otherwise
	case !path.IsAbs(s):
		p.addf(p.ipam.at(key), "write a path that starts with /", "%q is a relative path", s)
	}
	return s
}

// ignore notes that key has no effect.
func (p *parser) ignore(key, why string) {
	p.cfg.Ignored = append(p.cfg.Ignored, p.ipam.at(key)+": "+why)
}

// keys decides the form and goes through every key once.
func (p *parser) keys() {
	var defining []string
	for _, f := range p.ipam.fields {
		if form := definesForm(f.key); form != 0 && !says(f.raw, kindNothing) {
			p.form |= form
			defining = append(defining, f.key)
		}
	}
	if _, ok := p.runtime.ranges.get("ipRanges"); ok && p.form == 0 {
		p.form = formHostLocal
	}
	switch p.form {
	case formNamed, formWhereabouts, formHostLocal:
	case 0:
		remedy := `name a pool with "pool", or describe addresses with "range" or "subnet"`
		if p.cfg.Mode == ModeLocal {
			remedy = `describe addresses with "subnet" or "range"`
		}
		p.add(p.ipam.path, "does not say where addresses come from", remedy)
	default:
		p.addf(p.ipam.path, "keep one of them", "has %s, which are different ways to say where addresses come from",
			strings.Join(defining, " and "))
		p.form = 0
	}
	p.agree(p.ipam)
	for _, f := range p.ipam.fields {
		p.key(f)
	}
}

// key treats one key of "ipam" by the table.
func (p *parser) key(f field) {
	k, ok := known(f.key)
	switch {
	case isZero(f.raw):
	case !ok:
		p.unknownKey(p.ipam, f, keyNames())
	case k.how == unneeded:
		p.ignore(f.key, k.why)
	case k.how == refused:
		if k.name != "enable_l3" || p.flag(p.ipam, k.name, false) {
			p.unsupported(p.ipam.at(f.key), f.raw, "is not supported", k.why)
		}
	case p.form != 0 && k.forms&p.form == 0:
		remedy := "remove it"
		if p.form == formNamed {
			remedy += "; what it says belongs to the IPPool"
		}
		for _, other := range ipamKeys {
			if other.forms&p.form != 0 && foldKey(other.name) == foldKey(k.name) {
				remedy = "write " + other.name
			}
		}
		p.addf(p.ipam.at(f.key), remedy, "belongs to %v, and this configuration uses %v", k.forms, p.form)
	}
}

// keyNames returns the names of all keys of "ipam".
func keyNames() []string {
	names := make([]string, len(ipamKeys))
	for i, k := range ipamKeys {
		names[i] = k.name
	}
	return names
}

// sources reads where addresses come from, by the form.
func (p *parser) sources() {
	p.mark = p.n
	switch p.form {
	case formNamed:
		p.named()
	case formWhereabouts:
		p.whereabouts()
	case formHostLocal:
		p.hostLocal()
	case formAny, formInline: // sets of forms, for the table of keys alone
	}
}

// poolEntry is a pool that is named, or the label of the pod's namespace that names it.
type poolEntry struct{ path, name, label string }

// named reads "pool" and "pools".
func (p *parser) named() {
	var entries []poolEntry
	if name := p.text(p.ipam, "pool"); name != "" {
		entries = append(entries, poolEntry{path: p.ipam.at("pool"), name: name})
	}
	entries = append(entries, p.pools()...)
	if p.cfg.Mode == ModeLocal && len(entries) > 0 {
		p.add(entries[0].path, "names a pool, which only a cluster has",
			`describe the addresses here with "subnet" or "range", or remove "mode": "local"`)
		return
	}
	for i, e := range entries {
		if e.label == "" && !isPoolName(e.name) {
			p.addf(e.path, "use at most 63 lower-case letters, digits and -, with a letter or digit at both ends", "%q cannot be a pool's name", e.name)
			continue
		}
		for _, earlier := range entries[:i] {
			if earlier.name == e.name && earlier.label == e.label {
				p.addf(e.path, "name each pool once", "%q is named twice", e.name+e.label)
			}
		}
		p.cfg.Sources = append(p.cfg.Sources, Source{Pool: e.name, ByNamespace: e.label, TakesFirst: p.bridgeTakes})
	}
}

// pools reads "pools": a list of names, and of objects that say by which label of the pod's
// namespace the pool is named; or one such object.
func (p *parser) pools() (entries []poolEntry) {
	raw, ok := p.ipam.get("pools")
	if !ok {
		return nil
	}
	path := p.ipam.at("pools")
	if says(raw, kindObject) {
		return p.byNamespace(nil, path, raw)
	}
	for i, item := range p.items(path, raw) {
		at := fmt.Sprintf("%s[%d]", path, i)
		if says(item, kindObject) {
			entries = p.byNamespace(entries, at, item)
		} else if name := p.textOf(at, item); name != "" { // else it is reported
			entries = append(entries, poolEntry{path: at, name: name})
		}
	}
	return entries
}

// byNamespace adds the entry {"byNamespace": label}.
func (p *parser) byNamespace(entries []poolEntry, path string, raw json.RawMessage) []poolEntry {
	o, ok := p.dict(path, raw)
	if !ok {
		return entries
	}
	p.only(o, byNamespaceKey)
	const remedy = `write the label of the pod's namespace whose value is the pool's name, such as "tenure.dev/pool"`
	switch label := p.text(o, byNamespaceKey); {
	case label != "" && isLabelKey(label):
		return append(entries, poolEntry{path: path, label: label})
	case label != "":
		p.addf(o.at(byNamespaceKey), remedy, "%q cannot be the key of a label", label)
	default:
		p.add(o.at(byNamespaceKey), "is missing", remedy)
	}
	return entries
}

// version checks that the result can be expressed in the configuration's CNI
// version, as far as that is known before addresses are.
func (p *parser) version(top object) {
	if !p.cfg.oldVersion() {
		return
	}
	var families []allocator.Family // of the addresses to come
	for _, r := range p.cfg.Requested {
		families = append(families, allocator.FamilyOf(r.Addr))
	}
	asked := slices.Clone(families)
	for _, s := range p.cfg.Sources {
		for _, f := range s.Families {
			if s.Implicit != nil && !slices.Contains(asked, f) {
				families = append(families, f)
			}
		}
	}
	for _, f := range allocator.Families() {
		if n := countFamily(families, f); n > 1 {
			p.record(p.cfg.versionFault(top.at("cniVersion"), f, n))
		}
	}
}
