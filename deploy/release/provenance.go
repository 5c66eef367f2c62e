package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tenure-ipam/tenure/deploy/image"
)

// provenanceFile says of what source and how the other files were made, and the images and the
// chart as registries have them: a statement of in-toto with SLSA's provenance, version 1.
const provenanceFile = "provenance.intoto.json"

const (
	repository = "https://github.com/tenure-ipam/tenure"
	// builder is who builds: whoever follows that page, on a machine of his own. It is also what
	// says what the parameters mean.
	builder = repository + "/blob/main/docs/contributing/releasing.md"
)

// The documents of a statement, as the specifications have them.
type (
	statement struct {
		Type          string     `json:"_type"`
		Subject       []resource `json:"subject"`
		PredicateType string     `json:"predicateType"`
		Predicate     predicate  `json:"predicate"`
	}
	resource struct {
		Name   string            `json:"name,omitempty"`
		URI    string            `json:"uri,omitempty"`
		Digest map[string]string `json:"digest,omitempty"`
	}
	predicate struct {
		BuildDefinition buildDefinition `json:"buildDefinition"`
		RunDetails      runDetails      `json:"runDetails"`
	}
	buildDefinition struct {
		BuildType            string     `json:"buildType"`
		ExternalParameters   parameters `json:"externalParameters"`
		ResolvedDependencies []resource `json:"resolvedDependencies"`
	}
	parameters struct {
		Version       string   `json:"version"`
		Registry      string   `json:"registry"`
		Architectures []string `json:"architectures"`
	}
	runDetails struct {
		Builder builderDetails `json:"builder"`
	}
	builderDetails struct {
		ID      string            `json:"id"`
		Version map[string]string `json:"version"`
	}
)

const (
	statementType  = "https://in-toto.io/Statement/v1"
	provenanceType = "https://slsa.dev/provenance/v1"
)

// provenance writes the provenance of what is in the directory made.
func (r release) provenance(made string) error {
	all, err := sumsOf(made)
	if err != nil {
		return err
	}
	s := statement{Type: statementType, PredicateType: provenanceType, Predicate: predicate{
		BuildDefinition: buildDefinition{
			BuildType:          builder,
			ExternalParameters: parameters{r.Version, r.Registry, r.Archs},
			ResolvedDependencies: []resource{{
				URI: "git+" + repository + "@refs/tags/" + r.Version, Digest: map[string]string{"gitCommit": r.Commit},
			}},
		},
		RunDetails: runDetails{builderDetails{builder, map[string]string{"go": r.Go}}},
	}}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		s.Subject = append(s.Subject, resource{Name: name, Digest: map[string]string{"sha256": all[name]}})
	}
	images, err := filepath.Glob(filepath.Join(made, "*.tar"))
	if err != nil {
		return err
	}
	for _, archive := range images {
		digests, err := image.DigestsIn(archive)
		if err != nil {
			return err
		}
		for name, digest := range digests { // an archive of a release has one
			s.Subject = append(s.Subject, resource{Name: name, Digest: map[string]string{"sha256": strings.TrimPrefix(digest, "sha256:")}})
		}
	}
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(made, provenanceFile), append(text, '\n'), 0o644)
}

// readProvenance reads what a release in dir says that it was made of.
func readProvenance(dir string) (release, error) {
	file := filepath.Join(dir, provenanceFile)
	text, err := os.ReadFile(file)
	if err != nil {
		return release{}, err
	}
	var s statement
	if err := json.Unmarshal(text, &s); err != nil {
		return release{}, fmt.Errorf("%s: %w", file, err)
	}
	d := s.Predicate.BuildDefinition
	if s.Type != statementType || s.PredicateType != provenanceType || len(d.ResolvedDependencies) != 1 {
		return release{}, fmt.Errorf("%s must be a %s with a %s of one source", file, statementType, provenanceType)
	}
	r := release{
		Version: d.ExternalParameters.Version, Registry: d.ExternalParameters.Registry, Archs: d.ExternalParameters.Architectures,
		Commit: d.ResolvedDependencies[0].Digest["gitCommit"], Go: s.Predicate.RunDetails.Builder.Version["go"],
	}
	if !released.MatchString(r.Version) || r.Registry == "" || len(r.Archs) == 0 || r.Commit == "" || !strings.HasPrefix(r.Go, "go") {
		return release{}, errors.New(file + " must name version, registry, architectures, commit and Go")
	}
	return r, nil
}
