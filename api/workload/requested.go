package workload

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strings"

	"github.com/tenure-ipam/tenure/api/npwg"
)

// An addrRange is addresses in a row, all of one family.
type addrRange struct{ First, Last netip.Addr }

// String writes r as the annotation does.
func (r addrRange) String() string { return r.First.String() + "-" + r.Last.String() }

// at returns the n-th address of r, counted from 0; ok is false where r has fewer.
func (r addrRange) at(n int) (a netip.Addr, ok bool) {
	raw := r.First.As16()
	high, low := binary.BigEndian.Uint64(raw[:8]), binary.BigEndian.Uint64(raw[8:])
	low, carry := bits.Add64(low, uint64(n), 0)
	high, carry = bits.Add64(high, 0, carry)
	binary.BigEndian.PutUint64(raw[:8], high)
	binary.BigEndian.PutUint64(raw[8:], low)
	a = netip.AddrFrom16(raw)
	if r.First.Is4() {
		a = a.Unmap()
	}
	return a, n >= 0 && carry == 0 && a.Is4() == r.First.Is4() && !r.Last.Less(a)
}

// parseRange reads "10.20.0.20-10.20.0.29"; a single address is a range of one.
func parseRange(text string) (addrRange, error) {
	from, to, several := strings.Cut(text, "-")
	if !several {
		to = from
	}
	var r addrRange
	for _, end := range []struct {
		text string
		into *netip.Addr
	}{{from, &r.First}, {to, &r.Last}} {
		a, err := netip.ParseAddr(strings.TrimSpace(end.text))
		if err != nil || a.Zone() != "" || a.Is4In6() {
			return addrRange{}, fmt.Errorf("%.80q is no address; want a range such as 10.20.0.20-10.20.0.29", strings.TrimSpace(end.text))
		}
		*end.into = a
	}
	if r.First.Is4() != r.Last.Is4() || r.Last.Less(r.First) {
		return addrRange{}, fmt.Errorf("%s is no range: its end is below its start, or of the other family", r)
	}
	return r, nil
}

// parseRequested reads [AnnotationRequested] of a template: "range[, range]", and where there
// are several elements "lan=range[, range]; storage=range".
func parseRequested(text, namespace string, elements []Element) (map[Element][]addrRange, error) {
	if strings.TrimSpace(text) == "" {
		return map[Element][]addrRange{}, nil
	}
	all := map[Element][]addrRange{}
	for item := range strings.SplitSeq(text, ";") {
		name, list, named := strings.Cut(item, "=")
		if !named {
			list = item
		}
		e, err := elementNamed(name, named, namespace, elements)
		if err != nil {
			return nil, err
		}
		if all[e] != nil {
			return nil, fmt.Errorf("%s is there twice", e)
		}
		if all[e], err = parseRanges(list); err != nil {
			return nil, fmt.Errorf("%s: %w", e, err)
		}
	}
	return all, nil
}

// elementNamed returns the element that a part of the annotation is about.
func elementNamed(name string, named bool, namespace string, elements []Element) (Element, error) {
	if !named {
		if len(elements) > 1 {
			return Element{}, fmt.Errorf("%s names %d networks: say of which the range is, as in %s=10.20.0.20-10.20.0.29", AnnotationClaims, len(elements), elements[0].Name)
		}
		return elements[0], nil
	}
	of, err := ParseElements(strings.TrimSpace(name), namespace)
	if err != nil {
		return Element{}, fmt.Errorf("%.80q: %w", name, err)
	}
	if len(of) != 1 || !slices.Contains(elements, of[0]) {
		return Element{}, fmt.Errorf("%.80q is no element of %s", strings.TrimSpace(name), AnnotationClaims)
	}
	return of[0], nil
}

func parseRanges(list string) ([]addrRange, error) {
	var ranges []addrRange
	for text := range strings.SplitSeq(list, ",") {
		r, err := parseRange(text)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(ranges, func(o addrRange) bool { return o.First.Is4() == r.First.Is4() }) {
			return nil, errors.New("it has two ranges of one family; one of each can be asked for")
		}
		ranges = append(ranges, r)
	}
	return ranges, nil
}

// checkRanges checks that each range has an address for every ordinal.
func (s Set) checkRanges() error {
	var wrong npwg.Faults
	for _, e := range s.Elements {
		for _, r := range s.ranges[e] {
			if _, ok := r.at(s.Count - 1); s.Count > 0 && !ok {
				wrong.Add(fmt.Errorf("%s: range %s has fewer than %d addresses, and the StatefulSet has %d ordinals", e, r, s.Count, s.Count))
			}
		}
	}
	for i, a := range s.Elements {
		for _, b := range s.Elements[i+1:] {
			if a.Namespace == b.Namespace && a.Name == b.Name && overlap(s.ranges[a], s.ranges[b]) {
				wrong.Add(fmt.Errorf("%s and %s are of one network, and their ranges overlap", a, b))
			}
		}
	}
	return wrong.Err() //nolint:wrapcheck // says which element it is about
}

// overlap reports whether a range of a and one of b have an address in common.
func overlap(a, b []addrRange) bool {
	return slices.ContainsFunc(a, func(x addrRange) bool {
		return slices.ContainsFunc(b, func(y addrRange) bool {
			return x.First.Is4() == y.First.Is4() && !x.Last.Less(y.First) && !y.Last.Less(x.First)
		})
	})
}

// Addresses returns the addresses that an ordinal's claim is to ask for.
func (s Set) Addresses(ordinal int, e Element) (addrs []netip.Addr) {
	for _, r := range s.ranges[e] {
		if a, ok := r.at(ordinal - s.First); ok {
			addrs = append(addrs, a)
		}
	}
	return addrs
}

// Requested returns what Addresses does, as [AnnotationRequested] of a claim has it; empty if the
// claim asks for none.
func (s Set) Requested(ordinal int, e Element) string {
	var texts []string
	for _, a := range s.Addresses(ordinal, e) {
		texts = append(texts, a.String())
	}
	return strings.Join(texts, ",")
}
