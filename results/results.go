// Package results owns the words in which measurements are kept: a run, its
// rows, the samples of each second, and events. The JSON form is a promise to
// users: fields may be added, never renamed.
package results

import "time"

// Schema is the version of the JSON form.
const Schema = 1

// Status of a run.
const (
	Complete    = "complete"
	Interrupted = "interrupted"
	Failed      = "failed"
	Running     = "running"
)

// Run is one run of a scenario: the content of run.json.
type Run struct {
	Schema      int         `json:"schema"`
	ID          string      `json:"run_id"`
	Scenario    string      `json:"scenario"`
	Question    string      `json:"question,omitempty"`
	Profile     string      `json:"profile"`
	Started     time.Time   `json:"started"`
	Finished    time.Time   `json:"finished,omitzero"`
	Status      string      `json:"status"`
	Environment Environment `json:"environment"`
	Workload    Workload    `json:"workload"`
	Rows        []Row       `json:"rows"`
	Observer    []Observer  `json:"observer"`
	Verdicts    []Verdict   `json:"verdicts"`
	// Labs says for each topology what was built and how long it took.
	Labs []Lab `json:"labs"`
	// Windows are the single measurements that rows are made of.
	Windows   []Window    `json:"windows"`
	Published []Published `json:"published,omitempty"`
	// Notes concern the whole run: a topology put in the place of another.
	Notes []string `json:"notes,omitempty"`
}

// Environment is the machine and the software that measured.
type Environment struct {
	Kernel      string `json:"kernel"`
	CPUs        int    `json:"cpus"`
	CPUModel    string `json:"cpu_model,omitempty"`
	MemoryBytes int64  `json:"memory_bytes"`
	// FlushMS is how long the disk of the data takes to keep a write for good,
	// which every commit waits for; 0 is not known.
	FlushMS  float64           `json:"flush_ms,omitempty"`
	Provider string            `json:"provider"`
	Emulator string            `json:"emulator"`
	Servers  map[string]string `json:"servers"` // flavor -> version, as the servers said
	Faultlab string            `json:"faultlab,omitempty"`
}

// Workload is the load as it was resolved from scenario, profile and flags.
type Workload struct {
	Name         string `json:"name"` // as it calls itself: tpcc of a smaller scale is "tpcc-like"
	Tables       int    `json:"tables"`
	Rows         int    `json:"rows"`
	Threads      int    `json:"threads"`
	Distribution string `json:"distribution"`
	Warehouses   int    `json:"warehouses,omitempty"` // of tpcc, which has no tables to choose
	Scale        int    `json:"scale,omitempty"`      // how many times smaller a warehouse is than TPC-C's
}

// Row is one topology under one condition: its valid windows together.
type Row struct {
	Topology  string `json:"topology"`
	Variant   string `json:"variant,omitempty"` // of settings, where the scenario has several
	Condition string `json:"condition"`
	Threads   int    `json:"threads"`
	// Settings are the server variables that the scenario sets, by name.
	Settings map[string]string `json:"settings,omitempty"`
	Windows  int               `json:"windows"` // valid windows, that the figures are made of
	TPS      float64           `json:"tps"`     // median of the windows
	// TPSCI95 is a 95% interval over windows, null with fewer than
	// 3 of them.
	TPSCI95    *[2]float64        `json:"tps_ci95"`
	Latency    Latency            `json:"latency_ms"`
	RTT        *RTT               `json:"rtt_ms"` // null where no link is shaped
	VsBaseline *Ratio             `json:"vs_baseline"`
	VsSingle   *Ratio             `json:"vs_single"`
	Stability  Stability          `json:"stability"`
	Errors     int64              `json:"errors"`
	Retries    int64              `json:"retries"`
	Unknown    int64              `json:"unknown_outcomes"`
	Server     map[string]float64 `json:"server"` // counters, after minus before, summed over windows
	// EmulatorCPU is the emulator's share of one processor, median of the
	// windows.
	EmulatorCPU    float64  `json:"emulator_cpu"`
	Valid          bool     `json:"valid"`
	InvalidReasons []string `json:"invalid_reasons"`
	Warnings       []string `json:"warnings"`
}

// Latency of committed transactions in milliseconds.
type Latency struct {
	Avg float64 `json:"avg"`
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// RTT in milliseconds. Asked is what the condition adds to the baseline, Bare
// the RTT measured in the baseline condition, Measured the whole RTT in this
// condition; so the error is MeasuredP50 - Bare - Asked.
type RTT struct {
	Asked       float64 `json:"asked"`
	Bare        float64 `json:"bare"`
	MeasuredP50 float64 `json:"measured_p50"`
	MeasuredP99 float64 `json:"measured_p99"`
	// WorstP50 is the median of the link that is furthest from the asked RTT.
	WorstP50 float64 `json:"worst_p50"`
	Probes   int64   `json:"probes"`
	Lost     int64   `json:"lost"`
}

// Ratio of two TPS figures, over pairs of neighbouring windows.
type Ratio struct {
	Ratio float64 `json:"ratio"` // 0.93 is a loss of 7%
	// CI95 is a 95% interval over pairs, null with fewer than 3 pairs.
	CI95 *[2]float64 `json:"ci95"`
	// Detected tells that the interval excludes 1, with at least 5 pairs.
	Detected bool `json:"detected"`
	Pairs    int  `json:"pairs"`
	// Outcome in a word: "detected", "not detected" or "inconclusive" (too
	// few pairs).
	Outcome string `json:"outcome"`
}

// Stability of the one-second TPS within windows.
type Stability struct {
	CV            float64 `json:"cv"`
	P5OverP50     float64 `json:"p5_over_p50"`
	LongestStallS int     `json:"longest_stall_s"` // whole seconds below 10% of the window's median
	ZeroSeconds   int     `json:"zero_seconds"`
}

// Observer is what the emulator itself costs: LAN baseline against the same
// lab without emulator.
type Observer struct {
	Topology    string  `json:"topology"`
	Variant     string  `json:"variant,omitempty"`
	Ratio       Ratio   `json:"ratio"`
	EmulatorCPU float64 `json:"emulator_cpu"` // in the LAN baseline, share of one processor
}

// Verdict is what became of an expectation.
type Verdict struct {
	Expect  string `json:"expect"`
	Outcome string `json:"outcome"` // pass, fail, inconclusive
	Why     string `json:"why"`
}

// Lab describes one cluster that was measured.
type Lab struct {
	Topology string    `json:"topology"`
	Variant  string    `json:"variant,omitempty"`
	Server   string    `json:"server"` // "mysql 9.7.4"
	ReadyS   float64   `json:"ready_s"`
	Steps    []Step    `json:"steps"`
	Nodes    []LabNode `json:"nodes"`
	Error    string    `json:"error,omitempty"` // why it could not be measured
}

// Step is one named part of bringing a lab up.
type Step struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
}

// LabNode is one server and the settings that bear on speed and durability.
type LabNode struct {
	Name     string            `json:"name"`
	Site     string            `json:"site,omitempty"`
	Role     string            `json:"role"`
	Settings map[string]string `json:"settings"`
}

// Window is one timed measurement of one topology under one condition.
type Window struct {
	Topology  string  `json:"topology"`
	Variant   string  `json:"variant,omitempty"`
	Condition string  `json:"condition"`
	Pair      int     `json:"pair"` // counted from 1 within the topology
	Start     float64 `json:"start_s"`
	Seconds   float64 `json:"seconds"`
	TPS       float64 `json:"tps"`
	Latency   Latency `json:"latency_ms"`
	// RTTP50 and RTTP99 were measured on the links during the window, in
	// milliseconds, 0 where no link is shaped.
	RTTP50         float64  `json:"rtt_p50_ms"`
	RTTP99         float64  `json:"rtt_p99_ms"`
	Busy           float64  `json:"busy"`
	EmulatorCPU    float64  `json:"emulator_cpu"`
	Valid          bool     `json:"valid"`
	InvalidReasons []string `json:"invalid_reasons"`
}

// Sample is one second of a window: a line of samples.jsonl.
type Sample struct {
	Time      time.Time `json:"time"`
	Topology  string    `json:"topology"`
	Variant   string    `json:"variant,omitempty"`
	Condition string    `json:"condition"`
	Pair      int       `json:"pair"`
	Second    int       `json:"second"` // within the window, from 0
	TPS       float64   `json:"tps"`
	QPS       float64   `json:"qps"`
	Reads     float64   `json:"reads"` // a second, as the next two
	Writes    float64   `json:"writes"`
	Others    float64   `json:"others"`
	P50       float64   `json:"p50_ms"`
	P95       float64   `json:"p95_ms"`
	P99       float64   `json:"p99_ms"`
	Max       float64   `json:"max_ms"`
	Errors    int64     `json:"errors"`
	Retries   int64     `json:"retries"`
}

// Event is something that happened: a line of events.jsonl.
type Event struct {
	Time     time.Time `json:"time"`
	Topology string    `json:"topology,omitempty"`
	Node     string    `json:"node,omitempty"`
	Kind     string    `json:"kind"` // lab, fault, window, role, health, probe
	Text     string    `json:"text"`
}

// Published is a figure that others measured, shown beside ours: other
// hardware, other versions.
type Published struct {
	Topology   string  `json:"topology"`
	Condition  string  `json:"condition"`
	TPS        float64 `json:"tps,omitempty"`
	ResponseMS float64 `json:"response_ms,omitempty"`
	VsSingle   float64 `json:"vs_single,omitempty"`
	Text       string  `json:"text,omitempty"` // where no figure was published
	Source     string  `json:"source"`
}

// Sink takes what a run produces, as it is produced.
type Sink interface {
	Sample(Sample) error
	Event(Event) error
	// Save keeps the run as it stands now.
	Save(Run) error
}
