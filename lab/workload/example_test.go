package workload_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/faultlab/faultlab/lab/workload"
	"github.com/faultlab/faultlab/lab/workload/oltp"
)

// What `faultlab load oltp_read_write run` does, with sysbench's --tables,
// --table-size, --rand-type, --threads, --rand-seed, --report-interval and
// --time.
func Example() {
	ctx := context.Background()
	target := workload.Target{Addr: "127.0.0.1:3306", User: "sbtest", Password: "secret"}
	driver, err := oltp.New(oltp.Config{
		Workload:     "oltp_read_write",
		Tables:       4,
		Rows:         20_000,
		Distribution: oltp.Special,
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := driver.Prepare(ctx, target, nil); err != nil {
		log.Fatal(err)
	}

	const threads, interval = 16, 10 * time.Second
	var elapsed time.Duration
	load, err := workload.Start(ctx, driver, target, workload.Options{
		Threads:  threads,
		Seed:     1,
		Interval: interval,
		OnSample: func(s workload.Sample) {
			elapsed += s.Length
			fmt.Println(workload.FormatInterval(elapsed, threads, s))
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer load.Stop()
	window, err := load.Measure(ctx, time.Minute)
	fmt.Print(workload.FormatSummary(window))
	if err != nil {
		log.Fatal(err)
	}
}
