package facts

import (
	"encoding/json"
	"strconv"

	"github.com/tenure-ipam/tenure/ipam/lean/plainjson"
)

// What the plugin writes and reads in each of its short lives is written and read by
// hand, as the tags of the types say; the agent, which lives long, uses
// encoding/json.

// AppendTo appends q's JSON to b.
func (q Question) AppendTo(b []byte) []byte {
	b = q.Pod.AppendTo(append(b, `{"pod":`...))
	if len(q.Networks) > 0 {
		b = append(plainjson.AppendKey(b, "networks"), '[')
		for i, ref := range q.Networks {
			if i > 0 {
				b = append(b, ',')
			}
			b = plainjson.AppendText(append(b, `{"namespace":`...), ref.Namespace)
			b = append(plainjson.AppendText(plainjson.AppendKey(b, "name"), ref.Name), '}')
		}
		b = append(b, ']')
	}
	b = plainjson.AppendTextMember(b, "defaultNamespace", q.DefaultNamespace)
	if q.Live {
		b = append(plainjson.AppendKey(b, "live"), "true"...)
	}
	return append(b, '}')
}

// AppendTo appends p's JSON to b.
func (p PodRef) AppendTo(b []byte) []byte {
	b = plainjson.AppendText(append(b, `{"namespace":`...), p.Namespace)
	b = plainjson.AppendText(plainjson.AppendKey(b, "name"), p.Name)
	return append(plainjson.AppendTextMember(b, "uid", p.UID), '}')
}

// AppendTo appends r's JSON to b, in one line. r.Status is valid JSON.
func (r Report) AppendTo(b []byte) []byte {
	b = r.Pod.AppendTo(append(b, `{"pod":`...))
	b = plainjson.AppendText(plainjson.AppendKey(b, "containerID"), r.ContainerID)
	if r.Made != (Made{}) {
		b = plainjson.AppendTextMember(append(plainjson.AppendKey(b, "made"), '{'), "boot", r.Made.Boot)
		b = append(plainjson.AppendIntMember(b, "after", r.Made.After), '}')
	}
	if len(r.Status) > 0 {
		b = plainjson.AppendLine(plainjson.AppendKey(b, "status"), r.Status)
	}
	if len(r.PodIPs) > 0 {
		b = plainjson.AppendLine(plainjson.AppendKey(b, "podIPs"), r.PodIPs)
	}
	return append(appendWarnings(AppendWarnings(b, r.Warnings), "notes", r.Notes), '}')
}

// AppendWarnings appends the member warnings to b, which ends inside an object,
// unless there are none.
func AppendWarnings(b []byte, all []Warning) []byte { return appendWarnings(b, "warnings", all) }

func appendWarnings(b []byte, key string, all []Warning) []byte {
	if len(all) == 0 {
		return b
	}
	b = append(plainjson.AppendKey(b, key), '[')
	for i, w := range all {
		if i > 0 {
			b = append(b, ',')
		}
		b = plainjson.AppendText(append(b, `{"reason":`...), w.Reason)
		b = append(plainjson.AppendText(plainjson.AppendKey(b, "message"), w.Message), '}')
	}
	return append(b, ']')
}

// ParseAnswer reads an Answer from raw, valid JSON with nothing around it.
func ParseAnswer(raw json.RawMessage) (a Answer, err error) {
	err = plainjson.ReadMembers(raw, func(key []byte, v json.RawMessage) (err error) {
		switch string(key) {
		case "pod":
			err = a.Pod.parse(v)
		case "networks":
			a.Networks, err = plainjson.ReadList(v, parseDefinition)
		case "podNetworks":
			a.PodNetworks, err = plainjson.ReadList(v, parsePodNetwork)
		case "noPodNetworks":
			a.NoPodNetworks = string(v) == "true"
		case "vifs":
			a.VIFs, err = plainjson.ReadList(v, parseVIF)
		case "noVIFs":
			a.NoVIFs = string(v) == "true"
		}
		return err
	})
	return a, err
}

func (p *Pod) parse(raw json.RawMessage) error {
	return plainjson.ReadMembers(raw, func(key []byte, v json.RawMessage) (err error) {
		switch string(key) {
		case "namespace":
			p.Namespace, err = plainjson.ReadText[string](v)
		case "name":
			p.Name, err = plainjson.ReadText[string](v)
		case "uid":
			p.UID, err = plainjson.ReadText[string](v)
		case "annotations":
			p.Annotations, err = plainjson.ReadTexts(v)
		case "moving":
			p.Moving = string(v) == "true"
		case "namespaceLabels":
			p.NamespaceLabels, err = plainjson.ReadTexts(v)
		}
		return err
	})
}

func parsePodNetwork(raw json.RawMessage) (n PodNetwork, err error) {
	err = plainjson.ReadMembers(raw, func(key []byte, v json.RawMessage) (err error) {
		switch string(key) {
		case "name":
			n.Name, err = plainjson.ReadText[string](v)
		case "definition":
			var d Definition
			d, err = parseDefinition(v)
			n.Definition = d.Ref
		case "madeFor":
			n.MadeFor, err = plainjson.ReadText[string](v)
		case "provider":
			n.Provider, err = plainjson.ReadText[string](v)
		case "refused":
			n.Refused, err = plainjson.ReadText[string](v)
		case "later":
			n.Later = string(v) == "true"
		}
		return err
	})
	return n, err
}

func parseVIF(raw json.RawMessage) (f VIF, err error) {
	err = plainjson.ReadMembers(raw, func(key []byte, v json.RawMessage) (err error) {
		switch string(key) {
		case "element":
			f.Element, err = strconv.Atoi(string(v))
		case "interface":
			f.Interface, err = plainjson.ReadText[string](v)
		case "definition":
			var d Definition
			d, err = parseDefinition(v)
			f.Definition = d.Ref
		case "madeFor":
			f.MadeFor, err = plainjson.ReadText[string](v)
		case "claim":
			f.Claim, err = plainjson.ReadText[string](v)
		case "mac":
			f.MAC, err = plainjson.ReadText[string](v)
		case "refused":
			f.Refused, err = plainjson.ReadText[string](v)
		case "later":
			f.Later = string(v) == "true"
		}
		return err
	})
	return f, err
}

func parseDefinition(raw json.RawMessage) (d Definition, err error) {
	err = plainjson.ReadMembers(raw, func(key []byte, v json.RawMessage) (err error) {
		switch string(key) {
		case "namespace":
			d.Namespace, err = plainjson.ReadText[string](v)
		case "name":
			d.Name, err = plainjson.ReadText[string](v)
		case "missing":
			d.Missing, err = plainjson.ReadText[string](v)
		case "config":
			if !plainjson.IsNull(v) {
				d.Config = new(string)
				*d.Config, err = plainjson.ReadText[string](v)
			}
		case "annotations":
			d.Annotations, err = plainjson.ReadTexts(v)
		case "devices":
			d.Devices, err = plainjson.ReadList(v, plainjson.ReadText[string])
		case "deviceNames":
			d.DeviceNames, err = plainjson.ReadList(v, plainjson.ReadText[string])
		}
		return err
	})
	return d, err
}
