//go:build bench && kernel

package bench_test

import (
	"fmt"
	"testing"

	"github.com/faultlab/faultlab/netem/netemtest"
	"github.com/faultlab/faultlab/netem/qdisc"
)

// BenchmarkInKernel is what BenchmarkNetemKernelAccuracy runs under another
// kernel.
func BenchmarkInKernel(b *testing.B) {
	text := machine() + "\n"
	for _, load := range []string{"idle", "busy"} {
		n := netemtest.Network(b, 2)
		k := qdisc.Open()
		if load == "busy" {
			netemtest.Burn(b)
		}
		all := netemtest.MeasureAccuracy(b, k, n)
		text += fmt.Sprintf("\nProcessor %s; bare: echo %s, request %s.\n\n%s", load, us(all[0].Echo.Bare), us(all[0].Request.Bare), netemtest.Table(all))
		if err := k.Close(); err != nil {
			b.Error(err)
		}
	}
	fmt.Printf("\n%s\n%s%s\n", inKernelBegin, text, inKernelEnd)
}
