package scenarios

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/faultlab/faultlab/netem"
)

// load reads a scenario with one condition, whose keys are given.
func load(t *testing.T, dir, condition string) Condition {
	t.Helper()
	s, err := Load(filepath.Join(dir, "mine.yaml"), []byte(`schema: 1
name: mine
question: What does it cost?
topologies: [mgr]
conditions:
  - name: trouble
    `+condition+`
workload: {name: oltp_write_only}
`))
	if err != nil {
		t.Fatal(err)
	}
	return s.Conditions[0]
}

// course writes the moments of a window as lines: time, and each rule.
func course(c Condition, window time.Duration) []string {
	var out []string
	for _, m := range c.Moments(window) {
		line := FormatDuration(m.At) + ":"
		for _, l := range m.Links {
			line += fmt.Sprintf(" %s-%s %s;", l.From, l.To, l.Impairment)
		}
		out = append(out, line)
	}
	return out
}

func TestATimelineIsTheCourseOfAWindow(t *testing.T) {
	const cut = "[{between: [n1, n2], impair: partition}]"
	for _, c := range []struct {
		condition string
		want      []string
	}{
		{"links: [{between: nodes, rtt: 5ms}]", []string{"0ms: nodes-nodes delay 2.5ms;"}},
		{"timeline: [{at: 10s, links: " + cut + "}, {at: 20s, heal: true}]", []string{"0ms:", "10s: n1-n2 partition;", "20s:"}},
		{"timeline: [{at: 10s, links: " + cut + "}]", []string{"0ms:", "10s: n1-n2 partition;"}},
		{"timeline: [{at: 0s, for: 3s, links: " + cut + "}]", []string{"0ms: n1-n2 partition;", "3s:"}},
		{"timeline: [{every: 10s, for: 500ms, links: " + cut + "}]", []string{"0ms:", "10s: n1-n2 partition;", "10.5s:", "20s: n1-n2 partition;", "20.5s:"}},
		{"timeline: [{at: 1s, every: 15s, for: 2s, links: " + cut + "}]", []string{"0ms:", "1s: n1-n2 partition;", "3s:", "16s: n1-n2 partition;", "18s:"}},
		{"links: [{between: nodes, rtt: 5ms}]\n    timeline: [{at: 5s, for: 1s, links: " + cut + "}]",
			[]string{"0ms: nodes-nodes delay 2.5ms;", "5s: nodes-nodes delay 2.5ms; n1-n2 partition;", "6s: nodes-nodes delay 2.5ms;"}},
		{"timeline: [{at: 5s, links: [{between: nodes, rtt: 2ms}]}, {at: 10s, links: [{between: nodes, rtt: 4ms}]}, {at: 40s, heal: true}]",
			[]string{"0ms:", "5s: nodes-nodes delay 1ms;", "10s: nodes-nodes delay 2ms;"}},
	} {
		if diff := cmp.Diff(c.want, course(load(t, "", c.condition), 30*time.Second)); diff != "" {
			t.Errorf("%s\ncourse differs (-want +got):\n%s", c.condition, diff)
		}
	}
}

func TestATraceIsReplayedPointByPoint(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "wan.csv"), []byte("# a recording\ntime, rtt, loss, rate\n0s,70ms,0.1%,100mbit\n1.5s,90ms,,\n2s,,1%,\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"0ms: nodes-nodes delay 35ms loss 0.1% rate 100mbit;",
		"1.5s: nodes-nodes delay 45ms;",
		"2s: nodes-nodes loss 1%;",
	}
	if diff := cmp.Diff(want, course(load(t, dir, "trace: {file: wan.csv, between: nodes}"), 10*time.Second)); diff != "" {
		t.Errorf("course differs (-want +got):\n%s", diff)
	}
}

func TestALongTraceIsPlannedInATimeThatDoesNotShow(t *testing.T) {
	c := Condition{}
	for n := range maxTrace {
		c.Timeline = append(c.Timeline, Step{At: time.Duration(n) * shortestStep, Links: []LinkRule{{From: "nodes", To: "nodes"}}})
	}
	if n := len(c.Moments(time.Hour)); n != maxTrace {
		t.Errorf("%d moments, want %d", n, maxTrace)
	}
}

func TestTracesAreReadWithOrWithoutUnits(t *testing.T) {
	want := []TracePoint{{0, netem.Impairment{Delay: 6 * time.Millisecond, Loss: netem.Random{Chance: netem.Whole / 1000}, Rate: 1e8}}, {time.Second / 2, netem.Impairment{}}}
	for _, text := range []string{
		"time,rtt,loss,rate\n0s,12ms,0.1%,100mbit\n500ms,,,\n",
		"rate,loss,rtt,time\n100mbit,0.1%,12ms,0s\n,,,500ms\n",
		"time_s,rtt_ms,loss_percent,rate_mbit\n0,12,0.1,100\n0.5,,,\n",
		"\ufeffTime_ms,RTT_ms,loss_percent,rate_kbit\r\n0,12,0.1,100000\r\n500,,,\r\n",
	} {
		got, err := ReadTrace("wan.csv", []byte(text))
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%q: %v\n%s", text, err, diff)
		}
	}
}

func TestBadTracesAreRefusedWithTheirPlace(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "wan.csv:1:1: the file is empty",
		"time,rtt\n":                         "wan.csv:1:1: there is no point",
		"rtt\n5ms\n":                         "wan.csv:1:1: there is no column time",
		"time\n5s\n":                         "wan.csv:1:1: there is no column rtt, loss or rate",
		"time,lag\n0s,5ms\n":                 `wan.csv:1:6: unknown column "lag"; known: loss, loss_percent, rate, rate_kbit, rate_mbit, rtt, rtt_ms, time, time_ms, time_s`,
		"time,rtt,rtt_ms\n0s,5ms,5\n":        "wan.csv:1:10: column rtt is there twice",
		"time,rtt\n0s,5\n":                   "wan.csv:2:4: rtt: duration 5 has no unit",
		"time,rtt\n0,5ms\n":                  "wan.csv:2:1: duration 0 has no unit",
		"time,rtt\n0s,5ms\n0s,6ms\n":         "wan.csv:3:1: time 0ms is not at least 10ms after 0ms",
		"time,rtt\n0s,5ms,7\n":               "wan.csv:2:1: wrong number of fields",
		"time,loss\n0s,101%\n":               "wan.csv:2:4: loss: 101% is more than 100%",
		"time,rtt\n0s,5ms\n90000s,6ms\n":     "wan.csv:3:1: time 1500m is longer than a day",
		"time,rtt\n0s,\"5ms\n":               `wan.csv:2:9: extraneous or missing " in quoted-field`,
		"time,rtt\n0s,5ms\n,6ms\n":           "wan.csv:3:1: \"\" is not a duration",
		"time,rtt\n0s,5ms\n1s,9999999999h\n": "wan.csv:3:4: rtt: duration 9999999999h is too large",
	} {
		_, err := ReadTrace("wan.csv", []byte(text))
		if err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}

func FuzzReadTrace(f *testing.F) {
	f.Add("time,rtt,loss,rate\n0s,12ms,0.1%,100mbit\n500ms,,,\n")
	f.Add("time_s,rtt_ms,loss_percent,rate_mbit\n0,12,0.1,100\n0.5,,,\n")
	f.Fuzz(func(t *testing.T, text string) {
		points, err := ReadTrace("wan.csv", []byte(text))
		if err != nil {
			if !strings.HasPrefix(err.Error(), "wan.csv") {
				t.Errorf("%q: error without a place: %v", text, err)
			}
			return
		}
		for n, p := range points {
			if p.At < 0 || n > 0 && p.At <= points[n-1].At || p.Impairment.Validate() != nil {
				t.Errorf("%q: point %d is %+v", text, n, p)
			}
		}
	})
}
