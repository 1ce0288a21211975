package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/faultlab/faultlab/lab/topology"
	"github.com/faultlab/faultlab/lab/workload/oltp"
	"github.com/faultlab/faultlab/lab/workload/tpcc"
	"github.com/faultlab/faultlab/scenarios"
)

const module = "github.com/faultlab/faultlab"

// anyOther stands for every other package of this module.
const anyOther = "any other faultlab package"

// rules says which imports are forbidden, by package, both in paths from the
// module's root. A forbidden package of this module may not be reached through
// others either; one from elsewhere may not be named.
var rules = []struct {
	pkg       string
	forbidden []string
	why       string
}{
	{"netem", []string{anyOther}, "it is the vocabulary of faults that all others speak"},
	{"netem", []string{"github.com/vishvananda/netlink", "golang.org/x/sys/unix", "os", "net"}, "it is pure: whether an impairment is possible is decided without a kernel"},
	{"netem/netns", []string{"lab"}, "namespaces are of use without a lab"},
	{"netem/qdisc", []string{"lab", "netem/wire"}, "emulators attach to endpoints, whoever made them, and do not know each other"},
	{"netem/wire", []string{"lab", "netem/qdisc"}, "emulators attach to endpoints, whoever made them, and do not know each other"},
	{"netem/remote", []string{"lab", "netem/wire", "netem/qdisc"}, "it hands on what an emulator does, whichever that is"},
	{"netem/probe", []string{"lab", "netem/wire", "netem/qdisc"}, "a proof that knew the emulator would prove nothing"},
	{"lab", []string{"results", "scenarios"}, "a lab is of use without a run"},
	{"lab", []string{"github.com/docker/docker", "github.com/moby/moby"}, "only lab/docker may need Docker"},
	{"lab/server", []string{"lab/topology"}, "where a server comes from does not depend on how servers are bound together"},
	{"lab/mysql", []string{"lab/topology"}, "topologies are made of it"},
	{"lab/topology", []string{"lab/process", "lab/docker", "lab/labtest"}, "a topology runs on any provider"},
	{"lab/topology", []string{"netem/wire", "netem/qdisc"}, "replication does not know what is done to its links"},
	{"lab/process", []string{"lab/topology", "lab/docker"}, "a provider builds nodes and does not know what binds them together"},
	{"lab/docker", []string{"lab/topology", "lab/process"}, "a provider builds nodes and does not know what binds them together"},
	{"lab/labtest", []string{"lab/process", "lab/docker"}, "the contract of providers cannot depend on one"},
	{"lab/workload", []string{"lab", "results"}, "load is driven at any server, with or without a lab"},
	{"lab/workload/oltp", []string{"lab", "results"}, "load is driven at any server, with or without a lab"},
	{"lab/workload/tpcc", []string{"lab", "results"}, "load is driven at any server, with or without a lab"},
	{"scenarios", []string{"lab", "results"}, "a file is judged without anything that could carry it out"},
	{"scenarios/engine", []string{"lab/process", "lab/docker", "lab/topology", "lab/labtest", "lab/server"}, "a scenario also runs on fakes, without root"},
	{"scenarios/engine", []string{"netem/netns", "netem/qdisc", "netem/wire", "netem/probe"}, "a scenario also runs on fakes, without root"},
	{"scenarios/engine", []string{"results/report", "results/store"}, "what becomes of results is for the sink to say"},
	{"results", []string{anyOther}, "it is a file format, and readers need no more"},
	{"results/store", []string{"results/report"}, "a run is kept whether or not anyone reads it"},
	{"results/stats", []string{anyOther}, "arithmetic knows plain numbers"},
	{"results/report", []string{"results/store"}, "a report is made of a run, wherever that was kept"},
	{"results/report", []string{"net/http"}, "a report is a file, and no server"},
	{"results/dashboard", []string{"scenarios/engine", "lab"}, "it watches a run and takes no part in it"},
}

// planned are packages that rules speak of before they are written.
var planned = []string{"results/dashboard"}

// concrete packages are chosen by the command line and by nothing else, so that
// each can be replaced.
var concrete = []string{"lab/process", "lab/docker", "lab/topology", "netem/qdisc", "netem/remote", "netem/wire", "results/store", "results/report", "results/dashboard", "scenarios/engine"}

type goPackage struct {
	ImportPath, Dir, Doc string
	GoFiles, TestGoFiles []string
	XTestGoFiles         []string
	Imports, TestImports []string
	XTestImports, Deps   []string
}

// name is the package's path from the module's root: "." for the root itself.
func (p goPackage) name() string { return name(p.ImportPath) }

func name(importPath string) string {
	if importPath == module {
		return "."
	}
	return strings.TrimPrefix(importPath, module+"/")
}

func ours(importPath string) bool {
	return importPath == module || strings.HasPrefix(importPath, module+"/")
}

// packages of the module by name.
func packages(t *testing.T) map[string]goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,Doc,GoFiles,TestGoFiles,XTestGoFiles,Imports,TestImports,XTestImports,Deps", "./...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	all := map[string]goPackage{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all[p.name()] = p
	}
}

func TestNoPackageImportsWhatItMustNot(t *testing.T) {
	all := packages(t)
	for _, r := range rules {
		p, ok := all[r.pkg]
		if !ok {
			if !slices.Contains(planned, r.pkg) {
				t.Errorf("there is a rule for package %s and no such package: mend the rule", r.pkg)
			}
			continue
		}
		for _, f := range r.forbidden {
			switch _, exists := all[f]; {
			case f == anyOther:
				for _, dep := range p.Deps {
					if ours(dep) {
						t.Errorf("%s must not import %s: %s", r.pkg, name(dep), r.why)
					}
				}
			case exists:
				if slices.Contains(p.Deps, module+"/"+f) {
					t.Errorf("%s must not import %s%s: %s", r.pkg, f, through(all, p, f), r.why)
				}
			default:
				// A planned package, the standard library or another module.
				for _, i := range p.Imports {
					if i == f || strings.HasPrefix(i, f+"/") && strings.Contains(f, ".") {
						t.Errorf("%s must not import %s: %s", r.pkg, i, r.why)
					}
				}
			}
		}
	}
}

// through names an import of p by which it reaches the package called to.
func through(all map[string]goPackage, p goPackage, to string) string {
	if slices.Contains(p.Imports, module+"/"+to) {
		return ""
	}
	for _, i := range p.Imports {
		if ours(i) && slices.Contains(all[name(i)].Deps, module+"/"+to) {
			return " (through " + name(i) + ")"
		}
	}
	return ""
}

func TestConcretePackagesMeetInTheCommandLineOnly(t *testing.T) {
	for _, p := range packages(t) {
		for _, i := range p.Imports {
			if p.name() != "internal/cli" && slices.Contains(concrete, name(i)) {
				t.Errorf("%s imports %s: only internal/cli chooses among providers, emulators and outputs", p.name(), name(i))
			}
			if p.name() != "." && i == module+"/internal/cli" {
				t.Errorf("%s imports internal/cli: only main does", p.name())
			}
		}
	}
}

func TestEveryPackageSaysWhatItOwns(t *testing.T) {
	for n, p := range packages(t) {
		if n == "." || len(p.GoFiles) == 0 {
			continue
		}
		if want := "Package " + path.Base(p.ImportPath) + " owns "; !strings.HasPrefix(p.Doc, want) {
			t.Errorf("comment of package %s: got %q, want it to begin %q", n, p.Doc, want)
		}
	}
}

// What init does depends on what is linked in, not on what is called: wiring
// passes explicit maps.
func TestNoPackageHasAnInitFunction(t *testing.T) {
	for _, p := range packages(t) {
		for _, file := range slices.Concat(p.GoFiles, p.TestGoFiles, p.XTestGoFiles) {
			forEachNode(t, filepath.Join(p.Dir, file), func(n ast.Node, at token.Position) {
				if f, ok := n.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
					t.Errorf("%s has an init function: call it where it is needed", at)
				}
			})
		}
	}
}

func TestTheVocabularyOfFaultsStartsNoGoroutine(t *testing.T) {
	p, ok := packages(t)["netem"]
	if !ok {
		t.Fatal("there is no package netem")
	}
	for _, file := range p.GoFiles {
		forEachNode(t, filepath.Join(p.Dir, file), func(n ast.Node, at token.Position) {
			if _, ok := n.(*ast.GoStmt); ok {
				t.Errorf("%s starts a goroutine: netem is pure", at)
			}
		})
	}
}

func forEachNode(t *testing.T, file string, visit func(ast.Node, token.Position)) {
	t.Helper()
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if n != nil {
			visit(n, files.Position(n.Pos()))
		}
		return true
	})
}

// scenarios may import neither side and so has lists of its own.
func TestTheWordsOfScenariosAreThoseThatCanBeCarriedOut(t *testing.T) {
	var topologies []string
	for n := range topology.All() {
		topologies = append(topologies, n)
	}
	var distributions []string
	for _, d := range oltp.Distributions() {
		distributions = append(distributions, string(d))
	}
	for _, c := range []struct {
		what      string
		got, want []string
	}{
		{"topologies", scenarios.Topologies(), topologies},
		{"workloads", scenarios.Workloads(), append(oltp.Workloads(), tpcc.Name)},
		{"distributions", scenarios.Distributions(), distributions},
	} {
		slices.Sort(c.got)
		slices.Sort(c.want)
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s that a scenario may name differ from those there are (-there are +may name):\n%s", c.what, diff)
		}
	}
}

// A scenario may name the nodes that labs have when nobody says how many.
func TestScenariosNameTheNodesOfEveryTopology(t *testing.T) {
	for n, topo := range topology.All() {
		if got, most := topo.NodeCount(), len(scenarios.Nodes()); got > most {
			t.Errorf("%s has %d nodes, scenarios can name %d", n, got, most)
		}
	}
}
