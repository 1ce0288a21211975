package scenarios

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestASweepIsShortForVariants(t *testing.T) {
	const head = "schema: 1\nname: mine\nquestion: What?\ntopologies: [semisync, mgr, galera]\nworkload: {name: oltp_write_only}\n"
	workers := func(n string) map[string]map[string]string {
		return map[string]map[string]string{
			"semisync": {"replica_parallel_workers": n, "sort_buffer_size": "1M"},
			"mgr":      {"replica_parallel_workers": n},
			"galera":   {"wsrep_slave_threads": n},
		}
	}
	for _, c := range []struct {
		text string
		want []Variant
	}{
		{"sweep: {threads: [4, 16]}\n", []Variant{
			{"threads=4", 4, map[string]map[string]string{}}, {"threads=16", 16, map[string]map[string]string{}}}},
		{"settings: {semisync: {sort_buffer_size: 1M}}\nsweep: {variable: replica_parallel_workers, values: [1, 8], topologies: {galera: wsrep_slave_threads}}\n", []Variant{
			{"replica_parallel_workers=1", 0, workers("1")}, {"replica_parallel_workers=8", 0, workers("8")}}},
	} {
		s, err := Load("mine.yaml", []byte(head+c.text))
		if err != nil {
			t.Fatal(err)
		}
		p, err := s.Resolve("quick", Overrides{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, p.Variants); diff != "" {
			t.Errorf("%s: variants differ (-want +got):\n%s", c.text, diff)
		}
		text, err := p.YAML()
		if err != nil {
			t.Fatal(err)
		}
		if s, err = Load("scenario.yaml", text); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		again, err := s.Resolve("quick", Overrides{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(p, again); diff != "" {
			t.Errorf("%s: written and read again (-want +got):\n%s", c.text, diff)
		}
	}
	if _, err := Load("mine.yaml", []byte(head+"sweep: {threads: [4, 16]}\nexpect: [\"mgr.tps[threads=16, baseline] > mgr.tps[threads=4, baseline]\"]\n")); err != nil {
		t.Error(err)
	}
}

// What the documentation shows is what the language reads.
func TestEveryExampleOfTheDocumentationIsRead(t *testing.T) {
	text, err := os.ReadFile("../docs/scenarios.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(text), "```yaml\n")[1:]
	if len(blocks) < 6 {
		t.Fatalf("got %d examples, want at least 6", len(blocks))
	}
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/tuesday.csv", []byte("time,rtt\n0s,70ms\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, b := range blocks {
		b, _, _ = strings.Cut(b, "```")
		if !strings.HasPrefix(b, "schema:") {
			b = whole(b)
		}
		if _, err := Load(dir+"/mine.yaml", []byte(b)); err != nil {
			t.Errorf("%v\nin\n%s", err, b)
		}
	}
}

// whole makes a scenario of a part of one, with what the parts speak of.
func whole(part string) string {
	keys := map[string]string{
		"topologies": "topologies: [semisync, mgr, async, galera]\n",
		"conditions": "conditions: [{name: +0.6ms, links: [{between: nodes, rtt: 0.6ms}]}]\n",
	}
	out := "schema: 1\nname: example\nquestion: Is it read?\nworkload: {name: oltp_write_only}\n" + part
	for key, text := range keys {
		if !strings.Contains("\n"+part, "\n"+key+":") {
			out += text
		}
	}
	return out
}
