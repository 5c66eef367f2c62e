package imports

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tenure-ipam/tenure/test/programs"
)

// words are what the programs say to operators, by what they are.
type words struct {
	reasons, conditions, metrics, codes, rules map[string]bool
}

var (
	metricName = regexp.MustCompile(`^tenure_[a-z0-9_]+[a-z0-9]$`)
	reasonName = regexp.MustCompile(`^([Rr]eason|Refused)[A-Z]`)
	conditions = regexp.MustCompile(`^(Pool(Ready|Exhausted|Overlapping)|Condition[A-Z].*)$`)
	oneWord    = regexp.MustCompile(`^[A-Z][A-Za-z]+$`)
)

// said reads the words off the source of what ships.
func said(t *testing.T) words {
	t.Helper()
	root, err := programs.Root()
	if err != nil {
		t.Fatal(err)
	}
	w := words{map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}}
	for _, dir := range []string{"api", "attach", "claims", "cmd", "ipam"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err == nil {
				ast.Inspect(file, w.see)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// see takes the words of one piece of source.
func (w words) see(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.BasicLit:
		if text := literal(n); metricName.MatchString(text) {
			w.metrics[text] = true
		}
	case *ast.CallExpr: // tell(..., "TakenOver", ...), flag(...): a reason that has no constant
		if f, ok := n.Fun.(*ast.SelectorExpr); ok && (f.Sel.Name == "tell" || f.Sel.Name == "flag") {
			for _, arg := range n.Args {
				if lit, ok := arg.(*ast.BasicLit); ok && oneWord.MatchString(literal(lit)) {
					w.reasons[literal(lit)] = true
				}
			}
		}
	case *ast.ValueSpec:
		w.constant(n)
	}
	return true
}

func (w words) constant(n *ast.ValueSpec) {
	kind := fmt.Sprint(n.Type)
	if of, ok := n.Type.(*ast.SelectorExpr); ok {
		kind = of.Sel.Name
	}
	for i, name := range n.Names {
		if i >= len(n.Values) {
			return
		}
		lit, ok := n.Values[i].(*ast.BasicLit)
		switch {
		case !ok:
		case kind == "Code" && lit.Kind == token.INT:
			w.codes[lit.Value] = true
		case kind == "Rule":
			w.rules[literal(lit)] = true
		case conditions.MatchString(name.Name):
			w.conditions[literal(lit)] = true
		case reasonName.MatchString(name.Name):
			w.reasons[literal(lit)] = true
		}
	}
}

// literal is the text of a string literal, "" of any other.
func literal(lit *ast.BasicLit) string {
	text, err := strconv.Unquote(lit.Value)
	if lit.Kind != token.STRING || err != nil {
		return ""
	}
	return text
}

// TestReferenceIsWhole keeps docs/reference and the code in step: every condition, reason, metric,
// CNI error code and rule of check is the first cell of some row. A reason may be that of a
// condition, an Event or a refusal, each of which has its own page.
func TestReferenceIsWhole(t *testing.T) {
	docs, w := documents(t), said(t)
	for _, tt := range []struct {
		pages []string
		what  string
		words map[string]bool
		least int // as many as there are today, or fewer: that they are still found
	}{
		{[]string{"conditions.md"}, "condition", w.conditions, 7},
		{[]string{"conditions.md", "events.md", "errors.md"}, "reason", w.reasons, 30},
		{[]string{"metrics.md"}, "metric", w.metrics, 40},
		{[]string{"errors.md"}, "CNI error code", w.codes, 12},
		{[]string{"kubectl-tenure.md"}, "rule of check", w.rules, 14},
	} {
		if len(tt.words) < tt.least {
			t.Errorf("the code has %d of kind %s: %q; want %d at least", len(tt.words), tt.what, slices.Sorted(maps.Keys(tt.words)), tt.least)
		}
		var text strings.Builder
		for _, page := range tt.pages {
			text.WriteString(docs[filepath.Join("docs/reference", page)] + "\n")
		}
		for _, word := range slices.Sorted(maps.Keys(tt.words)) {
			row := regexp.MustCompile("(?m)^\\| (`[^|]*)?`?" + regexp.QuoteMeta(word) + "`?[ ,(`][^|]*\\|")
			if !row.MatchString(text.String()) {
				t.Errorf("docs/reference has no row of %s %s in %v", tt.what, word, tt.pages)
			}
		}
	}
}
