package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// Explain writes a plan and what Make said of it for a person to read: what each
// delegate would be given, what was ignored, and what would fail and why. Where unseen is
// not empty it stands in the place of the default network's configuration, of which p has
// none that counts.
func Explain(w io.Writer, p Plan, faults error, unseen string) error {
	var b bytes.Buffer
	pod := p.Pod.Namespace + "/" + p.Pod.Name
	switch n := len(p.Steps); {
	case faults != nil:
		fmt.Fprintf(&b, "Pod %s would not be attached to any network:\n", pod)
		for _, fault := range each(faults) {
			fmt.Fprintf(&b, "  - %v\n", fault)
		}
		if n > 0 {
			fmt.Fprintf(&b, "\nWhat could be planned, and is not carried out:\n")
		}
	case n == 1:
		fmt.Fprintf(&b, "Pod %s has 1 attachment:\n", pod)
	default:
		fmt.Fprintf(&b, "Pod %s has %d attachments, made in this order:\n", pod, n)
	}
	for i, s := range p.Steps {
		fmt.Fprintf(&b, "\n%d. ", i+1)
		why := ""
		if s.Default {
			why = unseen
		}
		if err := s.explain(&b, why); err != nil {
			return err
		}
	}
	if len(p.Warnings) > 0 {
		fmt.Fprintf(&b, "\nWarnings, which the pod gets as events:\n")
		for _, warning := range p.Warnings {
			fmt.Fprintf(&b, "  - %s: %s\n", warning.Reason, warning.Message)
		}
	}
	if len(p.Notes) > 0 {
		fmt.Fprintf(&b, "\nNotes:\n")
		for _, note := range p.Notes {
			fmt.Fprintf(&b, "  - %s\n", note)
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

// each returns the errors that a joined error consists of.
func each(err error) (all []error) {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	for _, e := range joined.Unwrap() {
		all = append(all, each(e)...)
	}
	return all
}

func (s Step) explain(b *bytes.Buffer, unseen string) error {
	line := func(key, format string, args ...any) {
		fmt.Fprintf(b, "   %-14s %s\n", key, fmt.Sprintf(format, args...))
	}
	what := "network"
	switch {
	case s.Default:
		what = whereDefault
	case s.PodNetwork != "":
		what = "PodNetwork"
	}
	if unseen == "" {
		fmt.Fprintf(b, "%s %s on interface %s\n", what, s.Name, s.IfName)
		line("CNI network", "%s", s.Network)
	} else {
		fmt.Fprintf(b, "%s on interface %s\n", what, s.IfName)
	}
	line("CNI_IFNAME", "%s", s.IfName)
	line("CNI_ARGS", "%s", joinArgs(s.Args))
	for _, capability := range slices.Sorted(maps.Keys(s.Capabilities)) {
		line("capability", "%s = %s", capability, s.Capabilities[capability])
	}
	if s.Claim != "" {
		line("claim", "%s: its addresses, if the network's IPAM plugin knows claims", s.Claim)
	}
	if len(s.Requested.IPs) > 0 {
		line("must have", "addresses %s", joinAddrs(s.Requested.IPs))
	}
	if s.Requested.MAC != "" {
		line("must have", "MAC address %s", s.Requested.MAC)
	}
	switch {
	case s.DefaultRoute != nil && len(*s.DefaultRoute) > 0:
		line("default route", "through %s", joinAddrs(*s.DefaultRoute))
	case s.DefaultRoute != nil:
		line("default route", "the network's own")
	case s.Gateway4 && s.Gateway6:
		line("default route", "through the network's gateways")
	case s.Gateway4:
		line("default route", "of IPv4, through the network's gateway")
	case s.Gateway6:
		line("default route", "of IPv6, through the network's gateway")
	case s.LosesDefaultRoute:
		line("default route", "removed: another attachment has it")
	}
	if s.Device != nil && s.Device.ID != "" {
		line("device", "%s of %s", s.Device.ID, s.Device.Resource)
	}
	if unseen != "" {
		fmt.Fprintf(b, "   %s\n", unseen)
		return nil
	}
	runs, err := s.Invocations()
	if err != nil {
		return err
	}
	for i, run := range runs {
		then := ""
		if i > 0 {
			then = ", and as prevResult what " + runs[i-1].Type + " answered"
		}
		fmt.Fprintf(b, "   %s gets%s:\n      ", run.Type, then)
		if err := json.Indent(b, run.Config, "      ", "  "); err != nil {
			return err
		}
		b.WriteByte('\n')
	}
	return nil
}

// joinArgs writes pairs as CNI_ARGS has them.
func joinArgs(args []Arg) string {
	var pairs []string
	for _, a := range args {
		pairs = append(pairs, a.Key+"="+a.Value)
	}
	return strings.Join(pairs, ";")
}

func joinAddrs(addrs []netip.Addr) string {
	var texts []string
	for _, a := range addrs {
		texts = append(texts, a.String())
	}
	return strings.Join(texts, ", ")
}
