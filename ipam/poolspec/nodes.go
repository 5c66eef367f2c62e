package poolspec

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/tenure-ipam/tenure/allocator"
	"github.com/tenure-ipam/tenure/ipam/labels"
)

// NodeLabels are the labels of a node that node selectors of pools name, as the controller tells
// them to the node's agent. A key that the node does not have as a label is nil. A key that is not
// there has not been told yet.
type NodeLabels map[string]*string

// ParseNodeLabels reads what [NodeLabels.String] has written.
func ParseNodeLabels(text string) (NodeLabels, error) {
	l := NodeLabels{}
	if text == "" {
		return l, nil
	}
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		return nil, fmt.Errorf("labels of a node: %w", err)
	}
	return l, nil
}

// String writes l as JSON, the keys in order; no labels as nothing.
func (l NodeLabels) String() string {
	if len(l) == 0 {
		return ""
	}
	text, err := json.Marshal(l)
	if err != nil { // strings
		panic(fmt.Sprintf("encode labels of a node: %v", err))
	}
	return string(text)
}

// Of returns those of l that keys name.
func (l NodeLabels) Of(keys []string) NodeLabels {
	some := NodeLabels{}
	for _, key := range keys {
		if value, told := l[key]; told {
			some[key] = value
		}
	}
	return some
}

// there returns the labels that the node has.
func (l NodeLabels) there() map[string]string {
	there := map[string]string{}
	for key, value := range l {
		if value != nil {
			there[key] = *value
		}
	}
	return there
}

// ForPeople writes the labels, those that are missing too: "rack=a, zone is missing".
func (l NodeLabels) ForPeople() string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(l)) {
		if value := l[key]; value != nil {
			all = append(all, key+"="+*value)
		} else {
			all = append(all, key+" is missing")
		}
	}
	return strings.Join(all, ", ")
}

// LabelKeys returns the keys of labels that the node selectors of t name, each once, sorted.
func (t PoolText) LabelKeys() []string {
	keys := map[string]bool{}
	for _, r := range t.Ranges {
		if r.NodeSelector == nil {
			continue
		}
		for key := range r.NodeSelector.Labels {
			keys[key] = true
		}
		for _, q := range r.NodeSelector.Requirements {
			keys[q.Key] = true
		}
	}
	return slices.Sorted(maps.Keys(keys))
}

// Selectors returns the node selectors of t's ranges as text, each once, in the ranges' order. It
// is empty if no range has one. The text of a range without a selector is empty.
func (t PoolText) Selectors() []string {
	var all []string
	some := false
	for _, r := range t.Ranges {
		if text := selectorText(r.NodeSelector); !slices.Contains(all, text) {
			all = append(all, text)
		}
		some = some || r.NodeSelector != nil
	}
	if !some {
		return nil
	}
	return all
}

// selectorText writes a node selector. One that selects all nodes is empty, as none is.
func selectorText(s *labels.Selector) string {
	if s == nil {
		return ""
	}
	return s.String()
}

// ForNode returns the part of a pool whose addresses are for pods of a node with these labels. A
// range whose selector names a label that has not been told is not among them. Whole is the shape
// of t.
func (t PoolText) ForNode(whole *allocator.Shape, l NodeLabels) *allocator.Shape {
	if len(t.LabelKeys()) == 0 {
		return whole
	}
	there := l.there()
	return whole.Part(func(i int) bool { return t.Ranges[i].isFor(l, there) })
}

func (r RangeText) isFor(l NodeLabels, there map[string]string) bool {
	return r.NodeSelector == nil || l.tells(PoolText{Ranges: []RangeText{r}}.LabelKeys()) && r.NodeSelector.Matches(there)
}

// Tells reports whether l tells of all labels that the node selectors of t name.
func (l NodeLabels) Tells(t PoolText) bool { return l.tells(t.LabelKeys()) }

func (l NodeLabels) tells(keys []string) bool {
	return !slices.ContainsFunc(keys, func(key string) bool { _, told := l[key]; return !told })
}

// Elsewhere returns the node selector of the range that an address lies in, if that is for other
// nodes than one with these labels. Whole is the shape of t.
func (t PoolText) Elsewhere(whole *allocator.Shape, l NodeLabels, a netip.Addr) (selector string, ok bool) {
	r, ok := t.rangeOf(whole, a)
	if !ok || r.isFor(l, l.there()) {
		return "", false
	}
	return selectorText(r.NodeSelector), true
}

// SelectorOf returns the text of the node selector of the range that an address lies in. It is
// empty for a range without one. Whole is the shape of t.
func (t PoolText) SelectorOf(whole *allocator.Shape, a netip.Addr) (selector string, ok bool) {
	r, ok := t.rangeOf(whole, a)
	return selectorText(r.NodeSelector), ok
}

func (t PoolText) rangeOf(whole *allocator.Shape, a netip.Addr) (r RangeText, ok bool) {
	in, ok := whole.Locate(a)
	if !ok || t.PerNode != nil { // its subnets are for whichever node leases them
		return r, false
	}
	return t.Ranges[slices.IndexFunc(whole.Ranges(), func(r allocator.Range) bool { return r.Start == in.Start })], true
}

// ForSelectors returns the part of a pool whose ranges have the node selectors of these texts.
// Whole is the shape of t.
func (t PoolText) ForSelectors(whole *allocator.Shape, texts ...string) *allocator.Shape {
	return whole.Part(func(i int) bool { return slices.Contains(texts, selectorText(t.Ranges[i].NodeSelector)) })
}

// Selects reports whether a node with these labels is given addresses of the ranges that have the
// node selector of that text.
func (t PoolText) Selects(text string, l NodeLabels) bool {
	there := l.there()
	return slices.ContainsFunc(t.Ranges, func(r RangeText) bool {
		return selectorText(r.NodeSelector) == text && r.isFor(l, there)
	})
}
