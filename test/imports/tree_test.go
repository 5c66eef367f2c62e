package imports

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tenure-ipam/tenure/test/programs"
)

// source is a package as `go list` tells of it. Tests are no part of it.
type source struct {
	ImportPath, Name, Doc string
	Standard              bool
	GoFiles               []string
	Imports, Deps         []string
}

// tree is the module's packages, and what is known of their dependencies.
type tree struct {
	own      []source // in order of their paths
	standard map[string]bool
}

// loaded is the tree, looked at once.
var loaded = sync.OnceValues(look)

func load(t *testing.T) tree {
	t.Helper()
	all, err := loaded()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func look() (tree, error) {
	root, err := programs.Root()
	if err != nil {
		return tree{}, err
	}
	cmd := exec.Command("go", "list", "-e", "-deps", "-json=ImportPath,Name,Doc,Standard,GoFiles,Imports,Deps", "./...")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return tree{}, fmt.Errorf("go list: %w", err)
	}
	all := tree{standard: map[string]bool{}}
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
		var s source
		if err := dec.Decode(&s); err != nil {
			return tree{}, fmt.Errorf("what go list says: %w", err)
		}
		all.standard[s.ImportPath] = s.Standard
		if within(s.ImportPath, programs.Module) && len(s.GoFiles) > 0 {
			all.own = append(all.own, s)
		}
	}
	slices.SortFunc(all.own, func(a, b source) int { return strings.Compare(a.ImportPath, b.ImportPath) })
	return all, nil
}

// short is how the rules write the package's path.
func (s source) short() string { return "." + strings.TrimPrefix(s.ImportPath, programs.Module) }

// ships reports whether s is more than a part of the tests.
func (s source) ships() bool {
	return !within(s.short(), "./test") && !strings.HasSuffix(s.Name, "test")
}

// offences returns what s knows of and r forbids.
func (t tree) offences(s source, r rule) (known []string) {
	for _, dep := range s.Deps {
		if slices.ContainsFunc(r.but, func(p string) bool { return importPath(p) == dep }) {
			continue
		}
		for _, p := range r.never {
			p = importPath(p)
			direct := slices.Contains(s.Imports, dep)
			if within(dep, p) && dep != s.ImportPath && (direct || !t.standard[dep]) {
				known = append(known, dep)
			}
		}
		for _, p := range r.reaches {
			if within(dep, importPath(p)) {
				known = append(known, dep)
			}
		}
	}
	slices.Sort(known)
	return slices.Compact(known)
}

// within reports whether the import path p is prefix or below it. A path of the
// standard library that names a package means that package alone: "log" is not
// "log/slog".
func within(p, prefix string) bool {
	if strings.HasSuffix(prefix, "/") {
		return strings.HasPrefix(p, prefix)
	}
	below := strings.Contains(prefix, ".") && strings.HasPrefix(p, prefix+"/")
	return p == prefix || below
}

func TestImports(t *testing.T) {
	all := load(t)
	for _, r := range rules {
		i := slices.IndexFunc(all.own, func(s source) bool { return s.short() == r.pkg })
		if i < 0 {
			t.Errorf("the rules name %s, which does not exist: remove its rule, or follow its new name", r.pkg)
			continue
		}
		for _, dep := range all.offences(all.own[i], r) {
			t.Errorf("%s knows of %s, and must not: %s", r.pkg, dep, r.why)
		}
	}
}

func TestRooms(t *testing.T) {
	all := load(t)
	for _, r := range rooms {
		in := 0
		for _, s := range all.own {
			if !s.ships() || !within(s.ImportPath, importPath(r.pkg)) {
				continue
			}
			in++
			for _, dep := range all.offences(s, r) {
				t.Errorf("%s, which is in %s, knows of %s, and must not: %s", s.short(), r.pkg, dep, r.why)
			}
		}
		if in == 0 {
			t.Errorf("the rooms name %s, in which there is nothing: remove it, or follow its new name", r.pkg)
		}
	}
}

func TestWhatShipsKnowsNoTests(t *testing.T) {
	all := load(t)
	for _, s := range all.own {
		if !s.ships() {
			continue
		}
		for _, dep := range all.offences(s, everywhere) {
			t.Errorf("%s knows of %s, and must not: %s", s.short(), dep, everywhere.why)
		}
	}
}

// TestOneSpeaksToOpenStack: a package that is linked with what speaks to OpenStack does not
// speak to it itself.
func TestOneSpeaksToOpenStack(t *testing.T) {
	for _, s := range load(t).own {
		near := slices.ContainsFunc(speakers, func(p string) bool { return within(s.ImportPath, importPath(p)) })
		if !s.ships() || s.short() == speakers[0] {
			continue
		}
		known := s.Deps
		if near {
			known = s.Imports
		}
		for _, dep := range known {
			if within(dep, openstack.never[0]) {
				t.Errorf("%s knows of %s, and must not: %s", s.short(), dep, openstack.why)
			}
		}
	}
}

func TestEveryPackageHasARule(t *testing.T) {
	for _, s := range load(t).own {
		ruled := slices.ContainsFunc(rules, func(r rule) bool { return r.pkg == s.short() })
		if s.ships() && !ruled {
			t.Errorf("%s has no rule: say in test/imports what it must not know of, and why", s.short())
		}
	}
}

// TestEveryPackageHasARow: whoever looks for a package finds it, or the folder that it is in, in
// the table of rooms.
func TestEveryPackageHasARow(t *testing.T) {
	const page = "docs/contributing/README.md"
	rooms := regexp.MustCompile("(?m)^\\| (`[^|]*`) \\|").FindAllString(documents(t)[page], -1)
	for _, s := range load(t).own {
		named := false
		for dir := strings.TrimPrefix(s.short(), "./"); dir != "."; dir = path.Dir(dir) {
			named = named || slices.ContainsFunc(rooms, func(row string) bool { return strings.Contains(row, "`"+dir+"`") })
		}
		if s.ships() && !named {
			t.Errorf("%s has no row in %s: say there which process runs it, and what it does", s.short(), page)
		}
	}
}

func TestPackagesPresentThemselves(t *testing.T) {
	for _, s := range load(t).own {
		want := "Package " + s.Name + " "
		if s.Name == "main" {
			want = "Command " + path.Base(s.ImportPath) + " "
		}
		if !strings.HasPrefix(s.Doc, want) {
			t.Errorf("%s has the package doc %q; want one that begins with %q", s.short(), s.Doc, want)
		}
		if slices.Contains(emptyNames, s.Name) || slices.Contains(emptyNames, path.Base(s.ImportPath)) {
			t.Errorf("%s has a name that says nothing: name it for what it is about", s.short())
		}
		if s.Name != "main" && s.Name != path.Base(s.ImportPath) && !strings.HasPrefix(path.Base(s.ImportPath), "v") {
			t.Errorf("%s calls itself %s: a package is found by its name", s.short(), s.Name)
		}
	}
}

// TestRulesSeeOffences gives the rules a tree that breaks them.
func TestRulesSeeOffences(t *testing.T) {
	all := tree{standard: map[string]bool{"os": true, "log/slog": true, "net/http": true, "fmt": true}}
	s := source{
		ImportPath: programs.Module + "/x",
		Imports:    []string{"fmt", "log/slog", "example.com/a"},
		Deps:       []string{"fmt", "os", "log/slog", "net/http", "example.com/a", "k8s.io/api/core/v1", programs.Module + "/ipam/node/store"},
	}
	tests := []struct {
		name string
		rule rule
		want []string
	}{
		{"nothing forbidden", rule{}, nil},
		{"another module, reached through a third", rule{never: []string{"k8s.io/"}}, []string{"k8s.io/api/core/v1"}},
		{"standard library, imported", rule{never: []string{"log/slog"}}, []string{"log/slog"}},
		{"standard library, only reached", rule{never: []string{"os"}}, nil},
		{"standard library, reached and not to be linked", rule{reaches: []string{"net/http"}}, []string{"net/http"}},
		{"a name that is only the beginning of another", rule{never: []string{"log", "example.com/ab"}}, nil},
		{"ours", rule{never: []string{"./ipam"}}, []string{programs.Module + "/ipam/node/store"}},
		{"ours, but not all", rule{never: []string{"./ipam"}, but: []string{"./ipam/node/store"}}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := all.offences(s, tt.rule); !slices.Equal(got, tt.want) {
				t.Errorf("offences %q; want %q", got, tt.want)
			}
		})
	}
}
