package arch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	maxFileLines = 500 // lines that hold code
	maxMainLines = 20
)

// pkg is what `go list` tells of one package.
type pkg struct {
	ImportPath   string
	Dir          string
	Name         string
	GoFiles      []string
	Imports      []string // of the package without its tests: those may import what they need
	XTestImports []string
	Deps         []string // everything that is linked
}

func TestTheImportsOfEveryPackageFollowTheArrowsOfTheDesign(t *testing.T) {
	t.Parallel()
	for _, broken := range check(list(t)) {
		t.Error(broken)
	}
}

func TestNoFileHoldsMoreCodeThanAReaderCanHold(t *testing.T) {
	t.Parallel()
	root := moduleRoot(t)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules"):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".go":
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if n := codeLines(src); n > maxFileLines {
			rel, _ := filepath.Rel(root, path)
			t.Errorf("%s has %d lines of code, more than %d", rel, n, maxFileLines)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestEveryMainOnlyCallsRun(t *testing.T) {
	t.Parallel()
	for _, p := range list(t) {
		if p.Name != "main" {
			continue
		}
		for _, name := range p.GoFiles {
			fset := token.NewFileSet()
			file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range file.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok || fn.Name.Name != "main" || fn.Recv != nil {
					continue
				}
				if n := fset.Position(fn.End()).Line - fset.Position(fn.Pos()).Line + 1; n >= maxMainLines {
					t.Errorf("%s: main has %d lines, at least %d", p.ImportPath, n, maxMainLines)
				}
			}
		}
	}
}

func TestABrokenArrowIsNamed(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		pkg  pkg
		want string // part of the message; empty means none
	}{
		"a vocabulary root that imports a vendor": {
			pkg{ImportPath: "delenda/storage", Imports: []string{"context", "github.com/google/uuid"}},
			"storage -> github.com/google/uuid: ",
		},
		"a vocabulary root that imports another": {
			pkg{ImportPath: "delenda/events", Imports: []string{"delenda/storage"}},
			"events -> storage: ",
		},
		"a pipeline that imports NATS": {
			pkg{ImportPath: "delenda/pipeline", Imports: []string{"github.com/nats-io/nats.go/jetstream"}},
			"pipeline -> github.com/nats-io/nats.go/jetstream: only events/bus",
		},
		"a pipeline that links a cloud library through another package": {
			pkg{ImportPath: "delenda/pipeline", Imports: []string{"delenda/storage"}, Deps: []string{"delenda/storage", "gocloud.dev/blob"}},
			"pipeline -> gocloud.dev/blob (linked): ",
		},
		"Delta that meets Lance": {
			pkg{ImportPath: "delenda/storage/delta/log", Imports: []string{"delenda/storage/lance"}},
			"storage/delta/log -> storage/lance: ",
		},
		"a recipient that links events": {
			pkg{ImportPath: "delenda/sharing/client", Deps: []string{"delenda/events"}},
			"sharing/client -> events (linked): ",
		},
		"a product that imports a test package": {
			pkg{ImportPath: "delenda/internal/service", Imports: []string{"delenda/storage/bucket/fault"}},
			"internal/service -> storage/bucket/fault: only tests",
		},
		"a product that imports testing": {
			pkg{ImportPath: "delenda/storage/delta", Imports: []string{"testing"}},
			"storage/delta -> testing: only tests",
		},
		"a package that imports a binary": {
			pkg{ImportPath: "delenda/pipeline", Imports: []string{"delenda/cmd/ingest"}},
			"pipeline -> cmd/ingest: ",
		},
		"an auditor that trusts the eraser's reader": {
			pkg{ImportPath: "delenda/pipeline/audit", Imports: []string{"delenda/storage/deletion"}},
			"pipeline/audit -> storage/deletion: ",
		},
		"a test that imports a test package": {
			pkg{ImportPath: "delenda/storage/delta", XTestImports: []string{"delenda/storage/storagetest"}},
			"",
		},
		"a package whose name begins like another's": {
			pkg{ImportPath: "delenda/storage/deltas", Imports: []string{"delenda/storage/lance"}},
			"",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := strings.Join(check([]pkg{test.pkg}), "\n")
			switch {
			case test.want == "" && got != "":
				t.Errorf("got %q, want nothing", got)
			case !strings.Contains(got, test.want):
				t.Errorf("got %q, want it to contain %q", got, test.want)
			}
		})
	}
}

// check returns one line for each arrow that breaks a rule.
func check(pkgs []pkg) []string {
	var broken []string
	for _, p := range pkgs {
		from := strings.TrimPrefix(p.ImportPath, module+"/")
		report := func(to, how, why string) {
			broken = append(broken, fmt.Sprintf("%s -> %s%s: %s", from, strings.TrimPrefix(to, module+"/"), how, why))
		}
		for _, to := range p.Imports {
			own := strings.HasPrefix(to, module+"/")
			if slices.Contains(vocabulary, from) && (own || strings.Contains(strings.Split(to, "/")[0], ".")) {
				report(to, "", "the vocabulary uses the standard library only")
			}
			if name := strings.TrimPrefix(to, module+"/"); !slices.Contains(testOnly, from) &&
				(own && slices.Contains(testOnly, name) || to == "testing") {
				report(to, "", "only tests import test packages")
			}
			for _, v := range vendorRules {
				if matches(v.vendor+"/...", to) && !matchesAny(v.only, from) && !slices.Contains(testOnly, from) {
					report(to, "", v.why)
				}
			}
		}
		for _, r := range rules {
			if !matchesAny(r.from, from) || matchesAny(r.except, from) || slices.Contains(testOnly, from) {
				continue
			}
			for _, to := range p.Imports {
				if forbidden(r.to, to) {
					report(to, "", r.why)
				}
			}
			for _, to := range p.Deps {
				if r.transitive && !slices.Contains(p.Imports, to) && forbidden(r.to, to) {
					report(to, " (linked)", r.why)
				}
			}
		}
	}
	return broken
}

// forbidden reports whether the import path to is one of the targets.
func forbidden(targets []string, to string) bool {
	name, own := strings.CutPrefix(to, module+"/")
	for _, t := range targets {
		vendor := strings.Contains(strings.Split(t, "/")[0], ".") && !strings.HasPrefix(t, ".")
		switch {
		case vendor && matches(t+"/...", to), !vendor && own && matches(t, name):
			return true
		}
	}
	return false
}

func matchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, name) })
}

// matches reports whether name is the pattern, or lies below a pattern that
// ends in "/...".
func matches(pattern, name string) bool {
	if pattern == "..." {
		return true
	}
	root, tree := strings.CutSuffix(pattern, "/...")
	return name == root || tree && strings.HasPrefix(name, root+"/")
}

// list returns every package of the module.
func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-e",
		"-json=ImportPath,Dir,Name,GoFiles,Imports,XTestImports,Deps", "./...")
	cmd.Dir = moduleRoot(t)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var pkgs []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return pkgs
		}
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		pkgs = append(pkgs, p)
	}
}

// moduleRoot is two directories up: tests run in their package's directory.
func moduleRoot(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// codeLines counts the lines that hold at least one token that is no comment.
func codeLines(src []byte) int {
	fset := token.NewFileSet()
	file := fset.AddFile("", -1, len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, 0)
	lines := map[int]bool{}
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			return len(lines)
		}
		if tok == token.SEMICOLON && lit == "\n" {
			continue
		}
		first := file.Line(pos)
		for i := range 1 + strings.Count(lit, "\n") {
			lines[first+i] = true
		}
	}
}
