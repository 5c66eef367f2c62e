package poolspec

import (
	"slices"
	"strings"
)

// form is a way to say where addresses come from. Values are bits: a key can
// belong to several.
type form uint8

const (
	formNamed form = 1 << iota
	formWhereabouts
	formHostLocal

	formInline = formWhereabouts | formHostLocal
	formAny    = formNamed | formInline
)

// String names the form as a subject.
func (f form) String() string {
	switch f {
	case formNamed:
		return "a named pool"
	case formWhereabouts:
		return "whereabouts' form"
	case formHostLocal:
		return "host-local's form"
	case formInline:
		return "an inline range"
	default:
		return "any form"
	}
}

// treatment is what becomes of a key.
type treatment uint8

const (
	honoured treatment = iota // it does what it says
	unneeded                  // read, listed in Config.Ignored
	refused                   // an error
)

// String is the word in docs/reference/configuration.md.
func (t treatment) String() string {
	return [...]string{"honoured", "no longer needed", "refused"}[t]
}

// key is one member of "ipam".
type key struct {
	name  string
	forms form
	how   treatment
	// why says of an unneeded key what has taken its place, of a refused one
	// what to do.
	why string
}

// The reasons that several keys share.
const (
	whyNoEtcd   = "Tenure keeps its state in the Kubernetes API and on the nodes"
	whyNoAPI    = "the node's agent talks to the API server, the plugin does not"
	whyLogs     = "the agent logs, by its own settings"
	whyNoLeader = "allocations wait for no election"
	whyReused   = "the agent and the controller reclaim addresses all the time"
)

// ipamKeys are all keys that may stand under "ipam". The linker makes the table: a
// program pays nothing for it before it is read.
var ipamKeys = [...]key{
	{"type", formAny, honoured, ""},
	{"mode", formAny, honoured, ""},
	{"socket", formAny, honoured, ""},
	{"journalDir", formAny, honoured, ""},
	{"dataDir", formAny, honoured, ""},
	{"statusWhenFull", formAny, honoured, ""},
	{"families", formAny, honoured, ""},
	{"routes", formAny, honoured, ""},
	{"dns", formAny, honoured, ""},
	{"resolvConf", formAny, honoured, ""},

	{"pool", formNamed, honoured, ""},
	{"pools", formNamed, honoured, ""},

	{"range", formWhereabouts, honoured, ""},
	{"ipRanges", formWhereabouts, honoured, ""},
	{"range_start", formWhereabouts, honoured, ""},
	{"range_end", formWhereabouts, honoured, ""},
	{"exclude", formWhereabouts, honoured, ""},
	{"network_name", formWhereabouts, honoured, ""},
	{"enable_overlapping_ranges", formWhereabouts, honoured, ""},

	{"subnet", formHostLocal, honoured, ""},
	{"ranges", formHostLocal, honoured, ""},
	{"rangeStart", formHostLocal, honoured, ""},
	{"rangeEnd", formHostLocal, honoured, ""},

	{"gateway", formInline, honoured, ""},

	{"addresses", formAny, refused, "let each pod ask for its own with ips, or keep its address with an IPAMClaim"},
	{"enable_l3", formAny, refused, "leave out the first and the last address of the range, or split it into prefixes of /31 and /32, which have all theirs"},

	{"name", formAny, unneeded, "the configuration's own name counts"},
	{"configuration_path", formAny, unneeded, "no further file is read; what it says about addresses belongs here"},
	{"node_slice_size", formAny, unneeded, "nodes lease blocks of the pool by themselves; the pool's blockSize sets their size"},
	{"exclude_gateway", formAny, unneeded, "a gateway is never given to a pod"},
	{"optimistic_ipam", formAny, unneeded, whyNoLeader},
	{"leader_lease_duration", formAny, unneeded, whyNoLeader},
	{"leader_renew_deadline", formAny, unneeded, whyNoLeader},
	{"leader_retry_period", formAny, unneeded, whyNoLeader},
	{"lease_duration", formAny, unneeded, whyNoLeader},
	{"backoff", formAny, unneeded, whyNoLeader},
	{"reconciler_cron_expression", formAny, unneeded, whyReused},
	{"sleep_for_race", formAny, unneeded, "it only delayed allocations for a test"},
	{"log_file", formAny, unneeded, whyLogs},
	{"log_level", formAny, unneeded, whyLogs},
	{"kubernetes", formAny, unneeded, whyNoAPI},
	{"datastore", formAny, unneeded, whyNoEtcd},
	{"etcd_host", formAny, unneeded, whyNoEtcd},
	{"etcd_username", formAny, unneeded, whyNoEtcd},
	{"etcd_password", formAny, unneeded, whyNoEtcd},
	{"etcd_key_file", formAny, unneeded, whyNoEtcd},
	{"etcd_cert_file", formAny, unneeded, whyNoEtcd},
	{"etcd_ca_cert_file", formAny, unneeded, whyNoEtcd},
}

// known returns what the table says of a key, which may be written in another case.
func known(name string) (k key, ok bool) {
	for _, k := range ipamKeys {
		if strings.EqualFold(k.name, name) {
			return k, true
		}
	}
	return key{}, false
}

// definesForm returns the form that the presence of the key decides, or 0.
func definesForm(name string) form {
	k, _ := known(name)
	switch k.name {
	case "pool", "pools":
		return formNamed
	case "range", "ipRanges":
		return formWhereabouts
	case "subnet", "ranges":
		return formHostLocal
	default:
		return 0
	}
}

// unknownKey decides what becomes of a key that o cannot have; names are the keys that it can have.
// A key that looks like one of these, or is a key of Tenure in the wrong place, is a fault: without
// it the author's wish would be lost. Any other key is somebody else's: it is noted as ignored. A
// key without a value is not even noted.
func (p *parser) unknownKey(o object, f field, names []string) {
	if p.full() || isZero(f.raw) {
		return
	}
	said := foldKey(f.key)
	for _, name := range names {
		if similar(said, foldKey(name)) {
			p.unsupported(o.at(f.key), f.raw, "is not a key that Tenure knows", "write "+name)
			return
		}
	}
	for _, k := range ipamKeys {
		if similar(said, foldKey(k.name)) {
			p.unsupported(o.at(f.key), f.raw, "is not a key that Tenure knows here", "remove it, or move it to where "+k.name+" belongs")
			return
		}
	}
	if len(p.cfg.Ignored) < maxFaults {
		p.cfg.Ignored = append(p.cfg.Ignored, o.at(f.key)+": is no key of Tenure's")
	}
}

// only treats every key of o that is not in names as unknown.
func (p *parser) only(o object, names ...string) {
	p.agree(o)
	for _, f := range o.fields {
		if !slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, f.key) }) {
			p.unknownKey(o, f, names)
		}
	}
}

// similar reports whether somebody who wrote a may have meant b, both as [foldKey] has them: they
// differ in one or two letters, short words in one, or have the same letters in another order.
func similar(a, b string) bool {
	most := 2
	if min(len(a), len(b)) <= 5 {
		most = 1
	}
	if max(len(a)-len(b), len(b)-len(a)) > most {
		return false
	}
	return distance(a, b) <= most || len(a) > 3 && len(a) == len(b) && sorted(a) == sorted(b)
}

// distance returns how many letters must be put in, taken out or replaced to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1) // the distances of a[:i] to each b[:j]
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// sorted returns s with its letters in order.
func sorted(s string) string {
	letters := []byte(s)
	slices.Sort(letters)
	return string(letters)
}

// foldKey returns s without what different spellings of one key differ in.
func foldKey(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(strings.ToLower(s), "_", ""), "-", "")
}
