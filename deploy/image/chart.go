package image

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// Media types of a chart, as Helm has them in registries.
const (
	typeChartConfig = "application/vnd.cncf.helm.config.v1+json"
	typeChart       = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// WriteChart packs the chart in the directory source for images of a version in a registry: as
// Helm installs it from a file, in packed, and as an archive of what a registry has of it under
// registry/charts, in archive.
func WriteChart(packed, archive, source, registry, version string) error {
	work, err := os.MkdirTemp(filepath.Dir(packed), ".chart")
	if err != nil {
		return err
	}
	files, about, err := released(work, source, registry, version)
	if err == nil {
		err = pack(packed, about["name"], files)
	}
	if err == nil {
		name := registry + "/charts/" + about["name"] + ":" + about["version"]
		err = writeArchive(archive, func(l layout) error { return l.chart(name, packed, about) })
	}
	return errors.Join(err, os.RemoveAll(work))
}

// In the source these lines have no version and no registry.
var (
	versionLine    = regexp.MustCompile(`(?m)^version: .*$`)
	appVersionLine = regexp.MustCompile(`(?m)^appVersion: .*$`)
	registryLine   = regexp.MustCompile(`(?m)^  registry: ""$`)
)

// released returns the files of a chart by their paths in it. Those that name the version
// or the registry are written to work. about is what Chart.yaml says.
func released(work, source, registry, version string) (files, about map[string]string, err error) {
	if files, err = filesIn(source); err != nil {
		return nil, nil, err
	}
	for name, lines := range map[string]map[*regexp.Regexp]string{
		"Chart.yaml":  {versionLine: "version: " + strings.TrimPrefix(version, "v"), appVersionLine: "appVersion: " + version},
		"values.yaml": {registryLine: "  registry: " + registry},
	} {
		text, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			return nil, nil, err
		}
		for line, instead := range lines {
			if n := len(line.FindAllIndex(text, -1)); n != 1 {
				return nil, nil, fmt.Errorf("%s has %d lines like %s, must have one", filepath.Join(source, name), n, line)
			}
			text = line.ReplaceAll(text, []byte(instead))
		}
		files[name] = filepath.Join(work, name)
		if err := os.WriteFile(files[name], text, 0o644); err != nil {
			return nil, nil, err
		}
		if name != "Chart.yaml" {
			continue
		}
		if about, err = scalars(string(text)); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", filepath.Join(source, name), err)
		}
	}
	return files, about, nil
}

// filesIn returns the files below a directory by their paths in it. Links are followed, as
// Helm does.
func filesIn(dir string) (map[string]string, error) {
	files := map[string]string{}
	there, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, f := range there {
		file := filepath.Join(dir, f.Name())
		info, err := os.Stat(file)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			files[f.Name()] = file
			continue
		}
		below, err := filesIn(file)
		if err != nil {
			return nil, err
		}
		for name, file := range below {
			files[path.Join(f.Name(), name)] = file
		}
	}
	return files, nil
}

// scalars reads a text in YAML that has keys and their values alone, each on one line.
func scalars(text string) (map[string]string, error) {
	all := map[string]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, value, ok := strings.Cut(line, ": ")
		if plain, err := strconv.Unquote(value); err == nil {
			value = plain
		}
		if !ok || value == "" {
			return nil, fmt.Errorf("line %q must be KEY: VALUE", line)
		}
		all[key] = value
	}
	return all, nil
}

// pack writes files into an archive below one directory, as Helm wants it.
func pack(file, dir string, files map[string]string) error {
	below := map[string]string{}
	for name, from := range files {
		below[path.Join(dir, name)] = from
	}
	return WriteTarGz(file, below, 0o644)
}

// WriteTarGz writes a compressed archive of files, whose paths in it are the keys. The same
// files give the same archive.
func WriteTarGz(file string, files map[string]string, mode fs.FileMode) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	packed, err := gzip.NewWriterLevel(f, gzip.BestCompression)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	return errors.Join(writeTar(packed, files, int64(mode)), packed.Close(), f.Close())
}

// chart lays out what a registry has of a chart: what it says of itself, and the packed chart.
func (l layout) chart(name, packed string, about map[string]string) error {
	config, err := l.document(typeChartConfig, about)
	if err != nil {
		return err
	}
	content, err := l.blob(typeChart, func(w io.Writer) error {
		f, err := os.Open(packed)
		if err != nil {
			return err
		}
		_, err = io.Copy(w, f)
		return errors.Join(err, f.Close())
	})
	if err != nil {
		return err
	}
	of, err := l.document(typeManifest, manifest{SchemaVersion: 2, MediaType: typeManifest, Config: config, Layers: []descriptor{content}})
	if err != nil {
		return err
	}
	return l.close(named(of, name))
}
