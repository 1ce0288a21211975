//go:build kernellab

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/faultlab/faultlab/netem/qdisc"
	"github.com/faultlab/faultlab/results"
)

// Runs under a kernel that has netem: make test-kernel-lab.
func TestACommitWaitsForALinkThatTheKernelDelays(t *testing.T) {
	if err := qdisc.Probe(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "run", "testdata/kernel-lab.yaml", "--profile", "quick", "--emulator", "kernel", "--json", "--out", t.TempDir())
	cmd.Env = append(os.Environ(), asProgram+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	var run results.Run
	if err := json.Unmarshal(out, &run); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if run.Status != "complete" || run.Environment.Emulator != "kernel" || len(run.Rows) != 2 {
		t.Fatalf("status %s, emulator %s, %d rows, want a complete run with two rows under the kernel's", run.Status, run.Environment.Emulator, len(run.Rows))
	}
	// What the kernel's emulator costs: its LAN against none.
	for _, o := range run.Observer {
		t.Logf("%s: LAN against no emulator %.3f %v", o.Topology, o.Ratio.Ratio, o.Ratio.CI95)
	}
	const rtt = 60 * time.Millisecond
	for _, r := range run.Rows {
		t.Logf("%s %s: %.1f TPS, median %.1f ms, RTT %v", r.Topology, r.Condition, r.TPS, r.Latency.P50, r.RTT)
		if !r.Valid {
			t.Errorf("%s %s is invalid: %q", r.Topology, r.Condition, r.InvalidReasons)
		}
		waits := r.Latency.P50 >= float64(rtt/time.Millisecond)
		if asked := r.Condition != "baseline"; waits != asked {
			t.Errorf("%s %s: a median response time of %.1f ms; a commit waits for one round trip of %v in the condition, and not without", r.Topology, r.Condition, r.Latency.P50, rtt)
		}
	}
}
