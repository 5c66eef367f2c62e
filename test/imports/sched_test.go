package imports

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// scheduled are the packages that start, wait, and tell the time through ipam/node/sched
// alone, so that a simulation can decide what they do when.
var scheduled = []string{"ipam/node/agent", "ipam/node/assign", "ipam/node/leasestatus", "ipam/node/recovery", "ipam/node/sightings"}

// TestAgentRunsByItsScheduler: the agent starts no goroutine, selects nothing, receives from no
// channel, reads no clock and draws no number by itself.
func TestAgentRunsByItsScheduler(t *testing.T) {
	never := map[string]bool{
		"time.Now": true, "time.Since": true, "time.Until": true, "time.After": true, "time.AfterFunc": true, "time.Sleep": true,
		"time.NewTimer": true, "time.NewTicker": true, "time.Tick": true,
		"context.WithTimeout": true, "context.WithTimeoutCause": true, "context.WithDeadline": true, "context.AfterFunc": true,
		"sync.Cond": true, "sync.WaitGroup": true,
	}
	for _, dir := range scheduled {
		files, err := filepath.Glob(filepath.Join("..", "..", dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", dir, len(files), err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, imported := range file.Imports {
				switch path := strings.Trim(imported.Path.Value, `"`); path {
				case "math/rand", "math/rand/v2", "golang.org/x/sync/errgroup", "github.com/tenure-ipam/tenure/ipam/pause":
					t.Errorf("%s imports %s: see ipam/node/sched", name, path)
				}
			}
			ast.Inspect(file, func(n ast.Node) bool {
				what := ""
				switch n := n.(type) {
				case *ast.GoStmt:
					what = "go"
				case *ast.SelectStmt:
					what = "select"
				case *ast.UnaryExpr:
					if n.Op == token.ARROW {
						what = "a receive"
					}
				case *ast.SelectorExpr:
					if pkg, ok := n.X.(*ast.Ident); ok && never[pkg.Name+"."+n.Sel.Name] {
						what = pkg.Name + "." + n.Sel.Name
					}
				}
				if what != "" {
					t.Errorf("%v: %s: see ipam/node/sched", set.Position(n.Pos()), what)
				}
				return true
			})
		}
	}
}
