package poolspec

import "strings"

// ParseResolvConf reads the text of a resolv.conf. Lines that it does not know
// mean nothing, as to the resolver.
func ParseResolvConf(text []byte) DNS {
	var d DNS
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0][0] == '#' || words[0][0] == ';' {
			continue
		}
		switch words[0] {
		case "nameserver":
			d.Nameservers = append(d.Nameservers, words[1])
		case "domain":
			d.Domain = words[1]
		case "search":
			d.Search = append(d.Search, words[1:]...)
		case "options":
			d.Options = append(d.Options, words[1:]...)
		}
	}
	return d
}
