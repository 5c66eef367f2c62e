package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// sbomSuffix ends the name of the file that says what a program is made of: a bill of materials
// as CycloneDX has it.
const sbomSuffix = ".cdx.json"

// sbom writes the bill of materials of the program in file beside it. The tool reads it out of the
// program.
func (r release) sbom(ctx context.Context, file, arch string) error {
	cmd := exec.CommandContext(ctx, r.sbomTool, "bin", "-json", "-noserial", "-notimestamp", "-std", "-version", r.Version, file)
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+arch) // which it would take from this machine
	var said bytes.Buffer
	cmd.Stderr = &said
	text, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("bill of materials of %s by %s: %w\n%s", filepath.Base(file), r.sbomTool, err, &said)
	}
	if text, err = sameEverywhere(text); err != nil {
		return fmt.Errorf("bill of materials of %s: %w", filepath.Base(file), err)
	}
	return os.WriteFile(file+sbomSuffix, text, 0o644)
}

// experiments are Go's settings that end the version of the standard library in a bill of
// materials. Nobody who looks that version up knows them.
var experiments = regexp.MustCompile(`(go[0-9.]+[0-9a-z.]*)-X:[0-9a-z,]+`)

// sameEverywhere removes from a bill of materials what tells of the machine that wrote it: the sums
// of the tool, which is another program on another processor.
func sameEverywhere(text []byte) ([]byte, error) {
	bill := map[string]any{}
	if err := json.Unmarshal(experiments.ReplaceAll(text, []byte("$1")), &bill); err != nil {
		return nil, err
	}
	meta, _ := bill["metadata"].(map[string]any)
	tools, _ := meta["tools"].([]any)
	if len(tools) == 0 {
		return nil, fmt.Errorf("it does not say by metadata.tools what has written it: is this tool's output another one by now? %s", strings.TrimSpace(string(text)))
	}
	for _, tool := range tools {
		if t, ok := tool.(map[string]any); ok {
			delete(t, "hashes")
		}
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(bill)
	return out.Bytes(), err
}
