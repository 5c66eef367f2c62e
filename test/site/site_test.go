// Package site_test looks at the documentation as make site renders it.
package site_test

import (
	"encoding/json"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/tenure-ipam/tenure/test/programs"
)

// page is a rendered page: what it links to, also in its navigation alone, and which anchors and
// title it has.
type page struct {
	title   string
	targets []string
	nav     []string
	anchors []string
}

// read collects what n and the nodes below it have; inNav says that they are of the navigation.
func (p *page) read(n *html.Node, inNav bool) {
	if n.Type == html.ElementNode {
		inNav = inNav || n.Data == "nav"
		for _, a := range n.Attr {
			switch a.Key {
			case "href", "src":
				p.targets = append(p.targets, a.Val)
				if inNav {
					p.nav = append(p.nav, a.Val)
				}
			case "id", "name":
				p.anchors = append(p.anchors, a.Val)
			}
		}
		if n.Data == "h1" && p.title == "" {
			p.title = text(n)
		}
	}
	for c := range n.ChildNodes() {
		p.read(c, inNav)
	}
}

// text returns the text of a heading, without the mark of its link.
func text(n *html.Node) string {
	if n.Type == html.TextNode {
		return n.Data
	}
	var b strings.Builder
	for c := range n.ChildNodes() {
		if c.Type == html.ElementNode && c.Data == "a" && slices.Contains(c.Attr, html.Attribute{Key: "class", Val: "headerlink"}) {
			continue
		}
		b.WriteString(text(c))
	}
	return b.String()
}

// render has make render the site, and returns where it is and its pages by their paths in it.
func render(t *testing.T) (dir string, pages map[string]*page) {
	t.Helper()
	root, err := programs.Root()
	if err != nil {
		t.Fatal(err)
	}
	// What make reads is looked at here, so that go test has no earlier result for changed pages.
	for _, sources := range []string{"docs", "ipam/lean"} {
		if err := filepath.WalkDir(filepath.Join(root, sources), func(_ string, _ fs.DirEntry, err error) error { return err }); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.ReadDir(root); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "make", "--no-print-directory", "site")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make site: %v\n%s", err, out)
	}
	dir, pages = filepath.Join(root, "bin/site/html"), map[string]*page{}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".html" || d.Name() == "404.html" {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		parsed, err := html.Parse(f)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		pages[rel] = &page{}
		pages[rel].read(parsed, false)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir, pages
}

func TestSite(t *testing.T) {
	dir, pages := render(t)
	if len(pages) < 40 {
		t.Fatalf("%d pages; want all of the documentation", len(pages))
	}
	t.Run("links and anchors resolve", func(t *testing.T) {
		for name, p := range pages {
			for _, target := range p.targets {
				checkLink(t, dir, pages, name, target)
			}
		}
	})
	t.Run("nothing is loaded from elsewhere", func(t *testing.T) { noneLoaded(t, dir) })
	t.Run("each page is found by search and is in the navigation", func(t *testing.T) { found(t, dir, pages) })
}

// checkLink fails if a link of the page name leads to nothing on the site.
func checkLink(t *testing.T, dir string, pages map[string]*page, name, target string) {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Errorf("%s links to %q: %v", name, target, err)
		return
	}
	if u.Scheme != "" || u.Host != "" {
		return // elsewhere
	}
	to := name
	if u.Path != "" {
		to = filepath.Join(filepath.Dir(name), u.Path)
		if info, err := os.Stat(filepath.Join(dir, to)); err == nil && info.IsDir() {
			to = filepath.Join(to, "index.html")
		}
	}
	if _, err := os.Stat(filepath.Join(dir, to)); err != nil {
		t.Errorf("%s links to %s, which is not on the site", name, target)
		return
	}
	if p := pages[to]; u.Fragment != "" && p != nil && !slices.Contains(p.anchors, u.Fragment) {
		t.Errorf("%s links to %s: %s has no such anchor", name, target, to)
	}
}

// noneLoaded fails if a page has the browser load a script, style or picture from elsewhere.
func noneLoaded(t *testing.T, dir string) {
	t.Helper()
	for _, name := range []string{"index.html", "docs/reference/api/index.html"} {
		doc, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, mark := range []string{`src="http`, `src="//`, `rel="stylesheet" href="http`} {
			if strings.Contains(string(doc), mark) {
				t.Errorf("%s has %s: a site has all that it shows", name, mark)
			}
		}
	}
}

// found fails if the index of the search lacks a page's title, or the home page's navigation the
// page.
func found(t *testing.T, dir string, pages map[string]*page) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "search/search_index.json"))
	if err != nil {
		t.Fatal(err)
	}
	var index struct {
		Docs []struct{ Location, Title string }
	}
	if err := json.Unmarshal(text, &index); err != nil {
		t.Fatal(err)
	}
	titles := map[string]string{}
	for _, d := range index.Docs {
		if !strings.Contains(d.Location, "#") {
			titles[filepath.Join(d.Location, "index.html")] = d.Title
		}
	}
	for name, p := range pages {
		switch got, ok := titles[name]; {
		case !ok:
			t.Errorf("search does not find %s", name)
		case got == "" || p.title == "":
			t.Errorf("%s has no title: begin the page with a heading", name)
		}
		if link := strings.TrimSuffix(name, "index.html"); link != "" && !slices.Contains(pages["index.html"].nav, link) {
			t.Errorf("%s is not in the navigation: give it a line in docs/mkdocs.yml", name)
		}
	}
}
