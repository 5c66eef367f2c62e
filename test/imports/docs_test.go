package imports

import (
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-ipam/tenure/test/programs"
)

// documents returns the Markdown files of the repository by their paths from
// its root.
func documents(t *testing.T) map[string]string {
	t.Helper()
	root, err := programs.Root()
	if err != nil {
		t.Fatal(err)
	}
	docs := map[string]string{}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (path == filepath.Join(root, "bin") || strings.HasPrefix(d.Name(), ".")) {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".md" {
			return nil
		}
		text, err := os.ReadFile(path)
		rel, relErr := filepath.Rel(root, path)
		docs[rel] = string(text)
		if err != nil {
			return err
		}
		return relErr
	})
	if err != nil {
		t.Fatal(err)
	}
	return docs
}

var (
	fence   = regexp.MustCompile("(?ms)^```.*?^```[ \t]*$")
	code    = regexp.MustCompile("`[^`\n]*`")
	link    = regexp.MustCompile(`!?\[[^\]]*\]\(([^)\s]+)(?:\s+"[^"]*")?\)`)
	heading = regexp.MustCompile(`(?m)^#{1,6}[ \t]+(.+?)[ \t#]*$`)
	notSlug = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// links returns the targets that doc links to, code left out.
func links(doc string) (targets []string) {
	doc = code.ReplaceAllString(fence.ReplaceAllString(doc, ""), "")
	for _, m := range link.FindAllStringSubmatch(doc, -1) {
		targets = append(targets, m[1])
	}
	return targets
}

// anchors returns the fragments of doc's headings, as GitHub makes them.
func anchors(doc string) (all []string) {
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(doc, ""), -1) {
		text := link.ReplaceAllStringFunc(m[1], func(l string) string { return l[strings.Index(l, "[")+1 : strings.Index(l, "]")] })
		slug := strings.ReplaceAll(notSlug.ReplaceAllString(strings.ToLower(text), ""), " ", "-")
		all = append(all, slug)
	}
	return all
}

func TestLinksOfDocumentsResolve(t *testing.T) {
	root, err := programs.Root()
	if err != nil {
		t.Fatal(err)
	}
	docs := documents(t)
	for name, doc := range docs {
		for _, target := range links(doc) {
			u, err := url.Parse(target)
			if err != nil {
				t.Errorf("%s links to %q: %v", name, target, err)
				continue
			}
			if u.Scheme != "" {
				continue // elsewhere
			}
			to := name
			if u.Path != "" {
				to = filepath.Join(filepath.Dir(name), u.Path)
			}
			if _, err := os.Stat(filepath.Join(root, to)); err != nil {
				t.Errorf("%s links to %s, which does not exist", name, target)
				continue
			}
			if u.Fragment != "" && !slices.Contains(anchors(docs[to]), u.Fragment) {
				t.Errorf("%s links to %s: %s has no heading of that name", name, target, to)
			}
		}
	}
}

func TestLinksAndAnchorsAreSeen(t *testing.T) {
	const doc = "# The title\n\nSee [a](a.md), ![b](b/c.png \"title\"), `[no](link)`.\n```\n# no heading\n[no](link2)\n```\n## What `IPPool` is, and [why](w.md)\n"
	if got, want := links(doc), []string{"a.md", "b/c.png", "w.md"}; !slices.Equal(got, want) {
		t.Errorf("links %q; want %q", got, want)
	}
	if got, want := anchors(doc), []string{"the-title", "what-ippool-is-and-why"}; !slices.Equal(got, want) {
		t.Errorf("anchors %q; want %q", got, want)
	}
}
