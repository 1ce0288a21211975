package workload

import (
	"fmt"
	"strings"
	"time"
)

// FormatInterval is sysbench 1.0's line of an interval that ended elapsed after
// the start, to the letter, so that what reads sysbench's output reads this:
//
//	[ 10s ] thds: 16 tps: 512.30 qps: 10246.00 (r/w/o: 7172.20/2049.20/1024.60) lat (ms,95%): 41.10 err/s: 0.00 reconn/s: 0.00
//
// As there, err/s counts the transactions that were tried again too.
func FormatInterval(elapsed time.Duration, threads int, s Sample) string {
	rate := func(n int64) float64 { return perSecond(n, s.Length) }
	return fmt.Sprintf("[ %.0fs ] thds: %d tps: %.2f qps: %.2f (r/w/o: %.2f/%.2f/%.2f) lat (ms,95%%): %.2f err/s: %.2f reconn/s: %.2f",
		elapsed.Seconds(), threads, rate(s.Transactions), rate(s.Reads+s.Writes+s.Others),
		rate(s.Reads), rate(s.Writes), rate(s.Others), milliseconds(s.P95),
		rate(s.Errors+s.Retries+s.Unknown), rate(s.Reconnects))
}

// FormatSummary is what sysbench 1.0 prints at the end, in its form, with the
// errors told apart and the share of time that the threads were busy.
func FormatSummary(w Window) string {
	var total Sample
	for _, s := range w.Samples {
		total.Reads += s.Reads
		total.Writes += s.Writes
		total.Others += s.Others
		total.Errors += s.Errors
		total.Reconnects += s.Reconnects
	}
	length := w.End.Sub(w.Start)
	queries := total.Reads + total.Writes + total.Others
	var b strings.Builder
	count := func(name string, n int64) {
		fmt.Fprintf(&b, "    %-36s %-6d (%.2f per sec.)\n", name, n, perSecond(n, length))
	}
	latency := func(name string, ms float64) { fmt.Fprintf(&b, "         %-30s %15.2f\n", name, ms) }

	fmt.Fprintf(&b, "SQL statistics:\n    queries performed:\n")
	for _, q := range []struct {
		name string
		n    int64
	}{{"read:", total.Reads}, {"write:", total.Writes}, {"other:", total.Others}, {"total:", queries}} {
		fmt.Fprintf(&b, "        %-32s %d\n", q.name, q.n)
	}
	count("transactions:", w.Transactions)
	count("queries:", queries)
	count("retries:", w.Retries)
	count("errors:", total.Errors)
	count("unknown outcomes:", w.Unknown)
	count("reconnects:", total.Reconnects)
	if w.Queue > 0 || w.Dropped > 0 {
		count("dropped (queue full):", w.Dropped)
		fmt.Fprintf(&b, "    %-36s %d\n", "longest queue:", w.Queue)
	}

	fmt.Fprintf(&b, "\nGeneral statistics:\n")
	fmt.Fprintf(&b, "    %-36s %.4fs\n", "total time:", length.Seconds())
	fmt.Fprintf(&b, "    %-36s %d\n", "total number of events:", w.Transactions)
	fmt.Fprintf(&b, "    %-36s %.1f%%\n", "threads busy:", 100*w.Busy)

	fmt.Fprintf(&b, "\nLatency (ms):\n")
	if h := w.Latency; h != nil && h.TotalCount() > 0 {
		latency("min:", float64(h.Min())/1e3)
		latency("avg:", h.Mean()/1e3)
		latency("max:", float64(h.Max())/1e3)
		latency("50th percentile:", milliseconds(quantile(h, 50)))
		latency("95th percentile:", milliseconds(quantile(h, 95)))
		latency("99th percentile:", milliseconds(quantile(h, 99)))
		latency("sum:", h.Mean()/1e3*float64(h.TotalCount()))
	}
	if len(w.Kinds) > 0 {
		const row, head = "    %-20s %10d %10.2f %9.2f %9.2f %9.2f %9.2f %8d %7d\n", "    %-20s %10s %10s %9s %9s %9s %9s %8s %7s\n"
		fmt.Fprintf(&b, "\nTransactions by kind, latency (ms):\n")
		fmt.Fprintf(&b, head, "", "number", "per sec.", "50th", "95th", "99th", "max", "retries", "errors")
		for _, k := range w.Kinds {
			h := k.Latency
			fmt.Fprintf(&b, row, k.Name+":", k.Transactions, k.TPS(w), milliseconds(quantile(h, 50)), milliseconds(quantile(h, 95)),
				milliseconds(quantile(h, 99)), float64(h.Max())/1e3, k.Retries, k.Errors+k.Unknown)
		}
	}
	return b.String()
}

func perSecond(n int64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
