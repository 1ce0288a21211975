package cli

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/faultlab/faultlab/netem"
	"github.com/faultlab/faultlab/netem/probe"
)

// measured is what probes of one link saw.
type measured struct {
	Sent  int     `json:"sent"`
	Lost  int     `json:"lost"`
	RTT50 float64 `json:"rtt_p50_ms"`
	RTT99 float64 `json:"rtt_p99_ms"`
}

func (m measured) String() string {
	if m.Sent == m.Lost {
		return fmt.Sprintf("nothing came back of %d probes", m.Sent)
	}
	return fmt.Sprintf("rtt p50 %.3f ms, p99 %.3f ms, %d of %d lost", m.RTT50, m.RTT99, m.Lost, m.Sent)
}

// measureLinks probes all links at once.
func (c *command) measureLinks(ctx *cli.Context, states []netem.LinkState) ([]measured, error) {
	const (
		probes   = 100
		interval = 20 * time.Millisecond
	)
	out := make([]measured, len(states))
	errs := make([]error, len(states))
	var wg sync.WaitGroup
	mctx, cancel := context.WithTimeout(ctx.Context, time.Minute)
	defer cancel()
	for i, s := range states {
		wg.Go(func() {
			stat, err := probe.Measure(mctx, probe.Pair{From: s.From, To: s.To}, probes, interval)
			out[i], errs[i] = measured{stat.Sent, stat.Lost, ms(stat.P50), ms(stat.P99)}, err
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
