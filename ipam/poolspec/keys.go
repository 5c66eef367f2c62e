package poolspec

import "strings"

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

// definesForm returns the form that the presence of the key decides, or 0.
func definesForm(name string) form {
	switch name {
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

// unknownKey reports that o cannot have a key of this name; known are those that
// it can have.
func (fs *faults) unknownKey(o object, name string, known []string) {
	if fs.full() {
		return
	}
	remedy := "remove it"
	for _, k := range known {
		if foldKey(k) == foldKey(name) {
			remedy = "write " + k
			break
		}
	}
	fs.add(o.at(name), "is not a key that Tenure knows", remedy)
}

// only reports every key of o that is not in known.
func (fs *faults) only(o object, known ...string) {
next:
	for _, f := range o.fields {
		for _, k := range known {
			if f.key == k {
				continue next
			}
		}
		fs.unknownKey(o, f.key, known)
	}
}

// foldKey returns s without what different spellings of one key differ in.
func foldKey(s string) string {
	return strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(s))
}
