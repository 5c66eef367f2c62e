package plan

import (
	"encoding/json"
	"fmt"
)

// RuntimeExtensions are those of the files of configurations that a runtime reads.
var RuntimeExtensions = []string{".conflist", ".conf", ".json"}

// ParseInstalled reads the configuration of tenure-attach out of what is installed for
// a runtime: a list that has it among its plugins, or it alone.
func ParseInstalled(text []byte) (*Config, error) {
	var outline struct {
		Plugins []json.RawMessage `json:"plugins"`
	}
	if err := json.Unmarshal(text, &outline); err != nil {
		return nil, err
	}
	if outline.Plugins == nil {
		outline.Plugins = []json.RawMessage{text}
	}
	for _, raw := range outline.Plugins {
		var p struct {
			Type string `json:"type"`
		}
		if err := json.Unmarshal(raw, &p); err != nil {
			return nil, err
		}
		if p.Type == PluginType {
			return ParseConfig(raw)
		}
	}
	return nil, fmt.Errorf("no plugin of type %s in it", PluginType)
}
