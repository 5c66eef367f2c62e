package imports

import (
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tenure-ipam/tenure/test/programs"
)

// Columns that a line may have: one that is a comment, and one that ends in a comment.
const (
	commentColumns = 100
	lineColumns    = 120
)

// TestCommentsFitTheScreen: a reader has a screen, not a wall. A line that is too long with its
// comment has it above. Markers for programs are on one line, however long.
func TestCommentsFitTheScreen(t *testing.T) {
	root, err := programs.Root()
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || path == filepath.Join(root, "bin")):
			return filepath.SkipDir
		case filepath.Ext(path) != ".go" || strings.HasPrefix(d.Name(), "zz_generated"):
			return nil
		}
		src, err := os.ReadFile(path)
		if err == nil {
			longComments(src, func(line, columns int) {
				t.Errorf("%s:%d: a comment ends at column %d", path, line, columns)
			})
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// longComments calls found with the lines of src whose comments end too far to the right.
func longComments(src []byte, found func(line, columns int)) {
	lines := strings.Split(string(src), "\n")
	files := token.NewFileSet()
	file := files.AddFile("", -1, len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, scanner.ScanComments)
	for pos, tok, text := s.Scan(); tok != token.EOF; pos, tok, text = s.Scan() {
		if tok != token.COMMENT || strings.HasPrefix(text, "//go:") || strings.HasPrefix(text, "//nolint") || strings.HasPrefix(text, "// +") {
			continue
		}
		at := files.Position(pos)
		line := lines[at.Line-1]
		limit := lineColumns
		if strings.TrimSpace(line[:at.Column-1]) == "" {
			limit = commentColumns
		}
		const tab = 4
		if columns := utf8.RuneCountInString(line) + (tab-1)*strings.Count(line, "\t"); columns > limit {
			found(at.Line, columns)
		}
	}
}

func TestLongCommentIsFound(t *testing.T) {
	long := strings.Repeat("x", 101)
	for src, want := range map[string]int{
		"// " + long: 1, "//go:generate " + long: 0, "// +marker:" + long: 0, "var a = 1 // short": 0,
		"var s = `" + long + "` // short": 0, "var s = `" + long + long + "` // of a long line": 1, "var s = `// " + long + long + "`": 0,
	} {
		got := 0
		longComments([]byte("package p\n\n"+src+"\n"), func(int, int) { got++ })
		if got != want {
			t.Errorf("%.40s…: %d are found; want %d", src, got, want)
		}
	}
}
