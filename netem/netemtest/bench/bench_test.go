//go:build bench

// Package bench_test has the benchmarks of `make bench-netem`: the emulator of
// this machine, measured for docs/netem.md, which they write their tables into.
package bench_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	vnetns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/faultlab/faultlab/netem"
	"github.com/faultlab/faultlab/netem/netemtest"
	"github.com/faultlab/faultlab/netem/netns"
	"github.com/faultlab/faultlab/netem/probe"
	"github.com/faultlab/faultlab/netem/wire"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == wire.Arg {
		if err := wire.Main(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const docs = "../../../docs/netem.md"

// publish puts a table into the documentation, between the marks of that name,
// and on the terminal.
func publish(b *testing.B, name, table string) {
	b.Helper()
	fmt.Printf("\n%s\n", table)
	text, err := os.ReadFile(docs)
	if err != nil {
		b.Fatal(err)
	}
	begin, end := fmt.Sprintf("<!-- begin %s -->\n", name), fmt.Sprintf("<!-- end %s -->", name)
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		b.Fatalf("%s lacks %s... %s", docs, begin, end)
	}
	text = []byte(before + begin + "\n" + strings.TrimSpace(table) + "\n\n" + end + after)
	if err := os.WriteFile(docs, text, 0o644); err != nil {
		b.Fatal(err)
	}
}

// machine says what the figures are of.
func machine() string {
	var u syscall.Utsname
	syscall.Uname(&u)
	var release []byte
	for _, c := range u.Release {
		if c != 0 {
			release = append(release, byte(c))
		}
	}
	kind := "machine"
	if cpu, err := os.ReadFile("/proc/cpuinfo"); err == nil && bytes.Contains(cpu, []byte("hypervisor")) {
		kind = "virtual machine"
	}
	return fmt.Sprintf("A %s, processors: %d, %.0f%% busy with other things before; Linux %s, %s.", kind, runtime.NumCPU(), 100*busy(), release, time.Now().Format("January 2006"))
}

// busy is the share of all processors' time that is not idle, over a second.
func busy() float64 {
	read := func() (all, idle float64) {
		text, _ := os.ReadFile("/proc/stat")
		line, _, _ := strings.Cut(string(text), "\n")
		for i, s := range strings.Fields(line) {
			n, _ := strconv.ParseFloat(s, 64) // 0 for the name in front
			if i > 8 {
				break // a guest's time is in its host's too
			}
			all += n
			if i == 4 || i == 5 { // idle, waiting for a disk
				idle += n
			}
		}
		return all, idle
	}
	all, idle := read()
	time.Sleep(time.Second)
	allNow, idleNow := read()
	return 1 - (idleNow-idle)/max(allNow-all, 1)
}

func open(b *testing.B) *wire.Backend {
	b.Helper()
	w, err := wire.Open(context.Background(), wire.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := w.Close(); err != nil {
			b.Error(err)
		}
	})
	return w
}

func apply(b *testing.B, w netem.Backend, links []netem.Link) {
	b.Helper()
	if err := w.Apply(context.Background(), links); err != nil {
		b.Fatal(err)
	}
}

func counters(b *testing.B, w netem.Backend) netem.Counters {
	b.Helper()
	c, err := w.Counters(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	return c
}

var us = netemtest.Micros

// BenchmarkNetemKernelAccuracy is of kernel netem, in the kernel that the
// contract is tested in.
func BenchmarkNetemKernelAccuracy(b *testing.B) {
	dir := b.TempDir()
	for _, c := range [][]string{
		{"go", "build", "-o", dir + "/uml", "github.com/faultlab/faultlab/internal/uml"},
		{"go", "test", "-c", "-tags", "bench,kernel", "-o", dir + "/bench", "."},
	} {
		cmd := exec.Command(c[0], c[1:]...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("%v: %v\n%s", cmd, err, out)
		}
	}
	cmd := exec.Command(dir+"/uml", "-timeout", "8m", "-bind", dir, "--", dir+"/bench", "-test.run", "^$", "-test.bench", "^BenchmarkInKernel$", "-test.benchtime", "1x")
	out, err := cmd.CombinedOutput()
	if err != nil {
		b.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	_, table, ok := strings.Cut(string(out), inKernelBegin)
	table, _, ok2 := strings.Cut(table, inKernelEnd)
	if !ok || !ok2 {
		b.Fatalf("no table in what the kernel's benchmark said:\n%s", out)
	}
	publish(b, "accuracy-kernel", strings.ReplaceAll(table, "\r", ""))
	b.ReportMetric(0, "ns/op")
}

const inKernelBegin, inKernelEnd = "--- begin table ---", "--- end table ---"

// BenchmarkNetemAccuracy sets the emulator beside Toxiproxy, at rest and with
// every processor busy.
func BenchmarkNetemAccuracy(b *testing.B) {
	proxy := buildToxiproxy(b)
	text := machine() + " Microseconds; bare is the same measure without emulator or proxy.\n"
	for _, load := range []string{"idle", "busy"} {
		n := netemtest.Network(b, 2)
		w := open(b)
		toxic := startToxiproxy(b, proxy, n[0])
		stop := func() {}
		if load == "busy" {
			stop = netemtest.Burn(b)
		}
		ours := netemtest.MeasureAccuracy(b, w, n)
		if err := w.Clear(context.Background()); err != nil {
			b.Fatal(err)
		}
		theirs := toxic.accuracy(b, n)
		stop()
		text += fmt.Sprintf("\nProcessors %s; bare: echo %s, request %s.\n\n", map[string]string{"idle": "idle", "busy": "all busy"}[load], us(ours[0].Echo.Bare), us(ours[0].Request.Bare))
		text += "| asked rtt | echo: p50 off | p99 - p50 | request: p50 off | p99 - p50 | Toxiproxy, request: p50 off | p99 - p50 |\n" +
			"|---:|---:|---:|---:|---:|---:|---:|\n"
		for _, a := range ours {
			off, spread := "cannot", ""
			if t, ok := theirs[a.Asked]; ok {
				off, spread = us(t.P50), us(t.Spread)
			}
			text += fmt.Sprintf("| %s | %s | %s | %s | %s | %s | %s |\n", netem.FormatDuration(a.Asked),
				us(a.Echo.P50), us(a.Echo.Spread), us(a.Request.P50), us(a.Request.Spread), off, spread)
			b.ReportMetric(float64(a.Echo.P50)/1000, fmt.Sprintf("us-off/%s/%v", load, a.Asked))
			b.ReportMetric(float64(a.Echo.Spread)/1000, fmt.Sprintf("us-spread/%s/%v", load, a.Asked))
		}
		strict(b, load, ours)
	}
	publish(b, "accuracy", text)
	b.ReportMetric(0, "ns/op")
}

// strict asserts the figures that the project promises of a machine that does
// nothing else.
func strict(b *testing.B, load string, all []netemtest.Accuracy) {
	for _, a := range all {
		bound := time.Duration(math.MaxInt64)
		switch {
		case load == "idle" && a.Asked == 100*time.Microsecond:
			bound = 20 * time.Microsecond
		case load == "idle" && a.Asked == 600*time.Microsecond:
			bound = 30 * time.Microsecond
		case load == "busy" && a.Asked >= 600*time.Microsecond:
			bound = a.Asked / 10
		}
		if a.Echo.P50.Abs() > bound {
			b.Errorf("%s: the median of %v asked is off by %v, more than %v", load, a.Asked, a.Echo.P50, bound)
		}
	}
}

// Toxiproxy is not needed by anything else here, so it is no requirement of
// the module.
const toxiproxyModule = "github.com/Shopify/toxiproxy/v2/cmd/server@v2.5.0"

func buildToxiproxy(b *testing.B) string {
	b.Helper()
	dir := b.TempDir()
	c := exec.Command("go", "install", toxiproxyModule)
	c.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=")
	if out, err := c.CombinedOutput(); err != nil {
		b.Fatalf("%v: %v\n%s", c, err, out)
	}
	return filepath.Join(dir, "server")
}

// toxiproxy is a server inside a node's namespace.
type toxiproxy struct {
	node netem.Endpoint
	api  http.Client
}

func startToxiproxy(b *testing.B, binary string, node netem.Endpoint) *toxiproxy {
	b.Helper()
	c := exec.Command(binary, "-host", "127.0.0.1", "-port", "8474")
	c.Env = append(os.Environ(), "LOG_LEVEL=error")
	if err := netns.Do(node.Netns, c.Start); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Process.Kill(); c.Wait() })
	t := &toxiproxy{node: node}
	t.api.Transport = &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
		return netns.Dial(ctx, node.Netns, "tcp", addr)
	}}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		r, err := t.api.Get("http://127.0.0.1:8474/version")
		if err == nil {
			r.Body.Close()
			return t
		}
		if time.Now().After(deadline) {
			b.Fatal(err)
		}
	}
}

func (t *toxiproxy) post(b *testing.B, path string, body map[string]any) {
	b.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		b.Fatal(err)
	}
	r, err := t.api.Post("http://127.0.0.1:8474"+path, "application/json", bytes.NewReader(text))
	if err != nil {
		b.Fatal(err)
	}
	defer r.Body.Close()
	if r.StatusCode >= 300 {
		said, _ := io.ReadAll(r.Body)
		b.Fatalf("toxiproxy: %s: %s", r.Status, said)
	}
}

// accuracy is of requests through the proxy. It takes whole milliseconds for
// each direction.
func (t *toxiproxy) accuracy(b *testing.B, n []netem.Endpoint) map[time.Duration]netemtest.Error {
	b.Helper()
	upstream := netemtest.Echoer(b, n[1])
	measure := func(addr string, asked time.Duration) []time.Duration {
		r := netemtest.NewRequests(b, n[0], addr)
		return r.Measure(b, int(min(max(2*time.Second/(asked+2*time.Millisecond), 20), 700)))
	}
	bare := probe.Quantile(measure(upstream, 0), 0.5)
	all := map[time.Duration]netemtest.Error{}
	for i, asked := range netemtest.RoundTrips() {
		if asked%time.Millisecond != 0 {
			continue
		}
		name, listen := fmt.Sprintf("p%d", i), fmt.Sprintf("127.0.0.1:%d", 7100+i)
		t.post(b, "/proxies", map[string]any{"name": name, "listen": listen, "upstream": upstream, "enabled": true})
		there := (asked/2 + time.Millisecond/2).Truncate(time.Millisecond)
		for stream, latency := range map[string]time.Duration{"upstream": there, "downstream": asked - there} {
			t.post(b, "/proxies/"+name+"/toxics", map[string]any{"type": "latency", "stream": stream, "attributes": map[string]any{"latency": latency.Milliseconds()}})
		}
		took := measure(listen, asked)
		p50 := probe.Quantile(took, 0.5)
		all[asked] = netemtest.Error{Bare: bare, P50: p50 - bare - asked, Spread: probe.Quantile(took, 0.99) - p50}
	}
	return all
}

// BenchmarkNetemThroughput compares a link of 1 ms round trip with one that no
// emulator shapes.
func BenchmarkNetemThroughput(b *testing.B) {
	n := netemtest.Network(b, 2)
	w := open(b)
	const rounds, length = 3, 3 * time.Second
	links := netemtest.Both(n[0], n[1], time.Millisecond)
	type figures struct{ bits, packets, cpu []float64 }
	state := map[bool]*figures{false: {}, true: {}}
	var cpuSmall, cpuLarge, sizes []float64
	for range rounds {
		for _, shaped := range []bool{false, true} {
			if shaped {
				apply(b, w, links)
			} else if err := w.Clear(context.Background()); err != nil {
				b.Fatal(err)
			}
			f := state[shaped]
			before := counters(b, w)
			f.bits = append(f.bits, netemtest.Bulk(b, n[0], n[1], length))
			middle := counters(b, w)
			f.packets = append(f.packets, flood(b, n[0], n[1], length))
			after := counters(b, w)
			if shaped {
				if k := middle.Packets - before.Packets; k > 0 {
					cpuLarge = append(cpuLarge, float64(middle.CPU-before.CPU)/float64(k)/1000)
					sizes = append(sizes, float64(middle.Bytes-before.Bytes)/float64(k))
				}
				if k := after.Packets - middle.Packets; k > 0 {
					cpuSmall = append(cpuSmall, float64(after.CPU-middle.CPU)/float64(k)/1000)
				}
				if lost := after.Overrun - middle.Overrun; lost > 0 {
					b.Logf("small packets: %d lost by overrun of %d", lost, after.Packets-middle.Packets+lost)
				}
			}
		}
	}
	bare, shaped := state[false], state[true]
	text := machine() + fmt.Sprintf(" Medians of %d rounds of %v each; both ends of a transfer and the emulator share the processors.\n\n", rounds, length)
	text += "| | unshaped | rtt 1 ms | ratio | emulator's CPU a packet |\n|---|---:|---:|---:|---:|\n"
	text += fmt.Sprintf("| one TCP transfer, Gbit/s | %.2f | %.2f | %.2f | %.2f us (of %.0f bytes) |\n", median(bare.bits)/1e9, median(shaped.bits)/1e9, median(shaped.bits)/median(bare.bits), median(cpuLarge), median(sizes))
	text += fmt.Sprintf("| UDP packets of 64 bytes, one thread sends, thousand a second | %.0f | %.0f | %.2f | %.2f us |\n", median(bare.packets)/1e3, median(shaped.packets)/1e3, median(shaped.packets)/median(bare.packets), median(cpuSmall))
	publish(b, "throughput", text)
	ratio := median(shaped.bits) / median(bare.bits)
	b.ReportMetric(ratio, "shaped/unshaped")
	b.ReportMetric(median(shaped.packets), "small-packets/s")
	b.ReportMetric(median(cpuSmall), "cpu-us/small-packet")
	b.ReportMetric(0, "ns/op")
	if ratio < 0.6 {
		b.Errorf("a shaped transfer has %.2f of the unshaped rate, want at least 0.60", ratio)
	}
}

// flood sends small packets as fast as one thread can and gives how many
// arrived in a second, by the count of the receiver's interface.
func flood(b *testing.B, from, to netem.Endpoint, length time.Duration) float64 {
	b.Helper()
	var sink net.PacketConn // nobody reads it, and nobody answers
	err := netns.Do(to.Netns, func() (err error) {
		sink, err = net.ListenPacket("udp4", to.Addr.String()+":0")
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	defer sink.Close()
	ns, err := vnetns.GetFromPath(to.Netns)
	if err != nil {
		b.Fatal(err)
	}
	defer ns.Close()
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		b.Fatal(err)
	}
	defer h.Close()
	arrived := func() uint64 {
		l, err := h.LinkByName(to.Interface)
		if err != nil {
			b.Fatal(err)
		}
		return l.Attrs().Statistics.RxPackets
	}
	fd := -1
	err = netns.Do(from.Netns, func() (err error) {
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	defer unix.Close(fd)
	port := sink.LocalAddr().(*net.UDPAddr).Port
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: port, Addr: to.Addr.As4()}); err != nil {
		b.Fatal(err)
	}
	small := make([]byte, 64-28)
	before, begun := arrived(), time.Now()
	for time.Since(begun) < length {
		for range 64 {
			unix.Write(fd, small)
		}
	}
	took := time.Since(begun)
	time.Sleep(100 * time.Millisecond)
	return float64(arrived()-before) / took.Seconds()
}

func median(all []float64) float64 {
	if len(all) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(all))
	return s[len(s)/2]
}

// BenchmarkNetemScale shapes full meshes, every pair with another round trip.
func BenchmarkNetemScale(b *testing.B) {
	text := machine() + " Every pair of nodes has another round trip, from 2 ms up; each is probed thirty times or more while all are.\n\n"
	text += "| nodes | directed links | set | changed live | worst p50 off | of all links | memory of the emulator | its CPU at rest | its CPU, probed |\n|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n"
	for _, nodes := range []int{3, 10, 30} {
		n := netemtest.Network(b, nodes)
		w := open(b)
		var pairs []probe.Pair
		for i, from := range n {
			for _, to := range n[i+1:] {
				pairs = append(pairs, probe.Pair{From: from, To: to})
			}
		}
		bare := medians(b, pairs)
		rtt := func(k int, shift time.Duration) time.Duration {
			return 2*time.Millisecond + time.Duration(k)*20*time.Microsecond + shift
		}
		links := func(shift time.Duration) (all []netem.Link) {
			for k, p := range pairs {
				all = append(all, netemtest.Both(p.From, p.To, rtt(k, shift))...)
			}
			return all
		}
		begun := time.Now()
		apply(b, w, links(0))
		set := time.Since(begun)
		time.Sleep(500 * time.Millisecond)
		begun = time.Now()
		apply(b, w, links(time.Millisecond))
		changed := time.Since(begun)

		const rest = 3 * time.Second
		before := counters(b, w)
		time.Sleep(rest)
		idle := float64(counters(b, w).CPU-before.CPU) / float64(rest)
		before, begun = counters(b, w), time.Now()
		got := medians(b, pairs)
		after := counters(b, w)
		busy := float64(after.CPU-before.CPU) / float64(time.Since(begun))
		var off []float64
		worst := time.Duration(0)
		for k := range pairs {
			d := got[k] - bare[k] - rtt(k, time.Millisecond)
			off = append(off, math.Abs(float64(d)))
			if d.Abs() > worst.Abs() {
				worst = d
			}
		}
		text += fmt.Sprintf("| %d | %d | %.3f s | %.3f s | %s | median %s | %.0f MB | %.1f%% | %.1f%% |\n", nodes, 2*len(pairs), set.Seconds(), changed.Seconds(),
			us(worst), us(time.Duration(median(off))), resident(b, w.Pid())/1e6, 100*idle, 100*busy)
		if after.Overrun > 0 {
			b.Errorf("%d nodes: %d packets were lost by overrun", nodes, after.Overrun)
		}
		if nodes == 30 {
			b.ReportMetric(set.Seconds(), "s-set")
			b.ReportMetric(changed.Seconds(), "s-change")
			b.ReportMetric(float64(worst.Abs())/1000, "us-worst")
			if set > 5*time.Second || changed > time.Second {
				b.Errorf("870 links: set in %v and changed in %v, want 5s and 1s", set, changed)
			}
		}
		if err := w.Close(); err != nil {
			b.Error(err)
		}
	}
	publish(b, "scale", text)
	b.ReportMetric(0, "ns/op")
}

// medians are of the round trips of all pairs, which are probed together.
func medians(b *testing.B, pairs []probe.Pair) []time.Duration {
	b.Helper()
	const each = 40
	interval := max(20*time.Millisecond, time.Duration(len(pairs))*700*time.Microsecond)
	p, err := probe.Open(pairs, interval)
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	time.Sleep(each * interval)
	var all []time.Duration
	for _, s := range p.Take() {
		if s.Lost > 0 {
			b.Errorf("%s to %s: %d of %d probes lost", s.From, s.To, s.Lost, s.Sent)
		}
		all = append(all, s.P50)
	}
	return all
}

// resident is how much memory a process has, in bytes.
func resident(b *testing.B, pid int) float64 {
	b.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		var kb float64
		if n, _ := fmt.Sscanf(line, "VmRSS: %f kB", &kb); n == 1 {
			return kb * 1024
		}
	}
	b.Fatalf("process %d has no VmRSS", pid)
	return 0
}
