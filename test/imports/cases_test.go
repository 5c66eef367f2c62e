package imports

import (
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

// casesPage explains labels, faultsPage lists the deliberate faults.
const casesPage, faultsPage = "docs/contributing/cases.md", "docs/contributing/simulation.md"

var (
	label     = regexp.MustCompile(`(WB|VM|FD|[ACDFHIKMNPQWX])[0-9]+`)
	labelRow  = regexp.MustCompile(`(?m)^\| ((?:WB|VM|FD|[A-Z])[0-9]+[a-z]?) \|`)
	testName  = regexp.MustCompile(`^(Test|Fuzz|Benchmark|Example)`)
	caseField = regexp.MustCompile(`^(name|row|title|what)$`)
	runsCase  = regexp.MustCompile(`^(Run|It|Specify|Entry|Describe|Context|When|DescribeTable)$`)
)

// inText returns the labels that are words of text.
func inText(text string) []string {
	return labels(text, func(r rune) bool { return !wordRune(r) }, func(r rune) bool { return !wordRune(r) })
}

// inName returns the labels of a function's name, which are to stand in its comment.
func inName(name string) []string {
	upper := func(r rune) bool { return 'A' <= r && r <= 'Z' }
	return labels(name, func(r rune) bool { return !upper(r) }, func(r rune) bool { return !wordRune(r) || upper(r) })
}

func wordRune(r rune) bool {
	return r == '_' || '0' <= r && r <= '9' || 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z'
}

// labels returns the labels of text that stand between runes that may be before and after one.
func labels(text string, before, after func(rune) bool) (all []string) {
	for _, at := range label.FindAllStringIndex(text, -1) {
		from, to := at[0], at[1]
		if strings.HasPrefix(text[from:], "VM") && to < len(text) && strings.Contains("bc", text[to:to+1]) {
			to++ // VM1b
		}
		if (from == 0 || before(rune(text[from-1]))) && (to == len(text) || after(rune(text[to]))) {
			all = append(all, text[from:to])
		}
	}
	return all
}

// use are the labels of Go files, each with one place that has it.
type use struct {
	asked map[string]string // those that need a row: in comments, and in titles of tests and cases
	named map[string]bool   // those of these that are in tests
	// misplaced are functions of tests whose names have labels, by their places.
	misplaced map[string]string
}

// uses reads every Go file of the repository.
func uses(t *testing.T) use {
	t.Helper()
	root, err := programs.Root()
	if err != nil {
		t.Fatal(err)
	}
	u := use{map[string]string{}, map[string]bool{}, map[string]string{}}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (path == filepath.Join(root, "bin") || strings.HasPrefix(d.Name(), ".")) {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".go" || d.Name() == "cases_test.go" { // the labels here are examples
			return nil
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		test := strings.HasSuffix(path, "_test.go")
		u.read(file, test, func(pos token.Pos) string {
			at := fset.Position(pos)
			return strings.TrimPrefix(at.String(), root+string(filepath.Separator))
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// read takes the labels of one file: of its comments, and if it is a test of its cases' titles.
func (u use) read(file *ast.File, test bool, place func(token.Pos) string) {
	add := func(pos token.Pos, labels []string) {
		for _, l := range labels {
			u.asked[l] = place(pos)
			u.named[l] = u.named[l] || test
		}
	}
	for _, group := range file.Comments {
		add(group.Pos(), inText(group.Text()))
	}
	if !test {
		return
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if f, ok := n.(*ast.FuncDecl); ok && f.Recv == nil && testName.MatchString(f.Name.Name) {
			if len(inName(f.Name.Name)) > 0 {
				u.misplaced[place(f.Pos())] = f.Name.Name
			}
		}
		for _, title := range titles(n) {
			for _, lit := range literals(title) {
				add(lit.Pos(), inText(literal(lit)))
			}
		}
		return true
	})
}

// titles returns what n names cases by: what it runs, or what a table has.
func titles(n ast.Node) (all []ast.Expr) {
	switch n := n.(type) {
	case *ast.CallExpr:
		if runsCase.MatchString(called(n.Fun)) && len(n.Args) > 0 {
			return n.Args[:1]
		}
	case *ast.CompositeLit:
		for i, e := range n.Elts {
			if title := titleIn(e, i); title != nil {
				all = append(all, title)
			}
		}
	}
	return all
}

// titleIn returns what names a case in the i-th element of a literal: a field that is
// called name or the like, the key of a map, or the first value of a row without keys. It is
// nil if e has none.
func titleIn(e ast.Expr, i int) ast.Expr {
	kv, keyed := e.(*ast.KeyValueExpr)
	if !keyed {
		if i == 0 {
			return e
		}
		return nil
	}
	field, ok := kv.Key.(*ast.Ident)
	switch {
	case !ok:
		return kv.Key
	case caseField.MatchString(field.Name):
		return kv.Value
	}
	return nil
}

// called is the name of the function that fun calls, without its package or receiver.
func called(fun ast.Expr) string {
	switch f := fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// literals returns the strings that e is put together from.
func literals(e ast.Expr) []*ast.BasicLit {
	switch e := e.(type) {
	case *ast.BasicLit:
		return []*ast.BasicLit{e}
	case *ast.ParenExpr:
		return literals(e.X)
	case *ast.BinaryExpr:
		return append(literals(e.X), literals(e.Y)...)
	}
	return nil
}

// rows returns the labels that the page's tables explain.
func rows(page string) (all []string) {
	for _, m := range labelRow.FindAllStringSubmatch(page, -1) {
		all = append(all, m[1])
	}
	return all
}

// unlike compares labels with rows of the page, and of the faults, which need no test here.
func unlike(u use, cases, faults []string) (faulty []string) {
	for _, l := range slices.Sorted(maps.Keys(u.asked)) {
		if !slices.Contains(cases, l) && !slices.Contains(faults, l) {
			faulty = append(faulty, u.asked[l]+" has the label "+l+", which "+casesPage+" does not explain; if it is none, spell it otherwise")
		}
	}
	for i, l := range cases {
		if !u.named[l] {
			faulty = append(faulty, casesPage+" explains "+l+", which no test names")
		}
		if slices.Contains(cases[:i], l) {
			faulty = append(faulty, casesPage+" explains "+l+" twice")
		}
	}
	return faulty
}

// TestEveryLabelIsExplained keeps docs/contributing/cases.md and the labels of tests in step.
func TestEveryLabelIsExplained(t *testing.T) {
	docs, u := documents(t), uses(t)
	cases := rows(docs[casesPage])
	if least := 200; len(cases) < least || len(u.named) < least {
		t.Errorf("%s explains %d labels, tests name %d; want %d at least: are they still found?", casesPage, len(cases), len(u.named), least)
	}
	for _, f := range unlike(u, cases, rows(docs[faultsPage])) {
		t.Error(f)
	}
	for place, name := range u.misplaced {
		t.Errorf("%s: the name %s has labels: they belong into its comment", place, name)
	}
}

// TestLabelsAreSeen: where labels are looked for, and what looks like one and is none.
func TestLabelsAreSeen(t *testing.T) {
	const test = `package x

// TestE2EStopped (X13, VM1b, N8, D4): F1, M2, IPv4, 10.0.0.1/24, F, K8S_POD_UID, M3-like.
func TestE2EStopped(t *testing.T) {
	t.Run("N20 "+row+" (N21)", nil)
	It("WB5, WB7 scales", func() { use("A1") })
	for range []tt{{"H1 first", "H2"}, {what: "I1", want: "I2"}} {}
	_ = map[string]int{"C5": 1, "VM1c": 2}
}

func TestX13Stopped(t *testing.T) {}

func helperX99() { t.Errorf("X98") }
`
	file, err := parser.ParseFile(token.NewFileSet(), "x_test.go", test, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	u := use{map[string]string{}, map[string]bool{}, map[string]string{}}
	u.read(file, true, func(p token.Pos) string { return "x_test.go:" + strconv.Itoa(int(p)) })
	want := []string{"C5", "D4", "F1", "H1", "I1", "M2", "M3", "N20", "N21", "N8", "VM1b", "VM1c", "WB5", "WB7", "X13"}
	if got := slices.Sorted(maps.Keys(u.asked)); !slices.Equal(got, want) {
		t.Errorf("labels %q; want %q", got, want)
	}
	if got := slices.Collect(maps.Values(u.misplaced)); !slices.Equal(got, []string{"TestX13Stopped"}) {
		t.Errorf("labels stand in the names %q; want TestX13Stopped alone", got)
	}

	page := "| label | what |\n| --- | --- |\n| N1 | a |\n| VM1b | b |\n| N1 | a |\n| X13 N14 | no row |\nN15\n"
	u = use{map[string]string{"N1": "a_test.go:1", "N2": "b_test.go:2", "M1": "c.go:3"}, map[string]bool{"N1": true, "N2": true}, nil}
	wrong := []string{
		"b_test.go:2 has the label N2, which docs/contributing/cases.md does not explain; if it is none, spell it otherwise",
		"docs/contributing/cases.md explains VM1b, which no test names",
		"docs/contributing/cases.md explains N1 twice",
	}
	if got := unlike(u, rows(page), []string{"M1"}); !slices.Equal(got, wrong) {
		t.Errorf("found %q; want %q", got, wrong)
	}
}
