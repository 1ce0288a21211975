//go:build integration

package oltp

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// A sample of sysbench's and one of ours differ by no more than chance.
func TestOurDistributionsAreSysbenchsOwn(t *testing.T) {
	if _, err := exec.LookPath("sysbench"); errors.Is(err, exec.ErrNotFound) {
		t.Skip(err)
	}
	const n, count = 1000, 200_000
	script := filepath.Join(t.TempDir(), "draws.lua")
	if err := os.WriteFile(script, []byte(`
sysbench.cmdline.options = {dist = {"", "special"}, n = {"", 1000}, draws = {"", 1000}}
function event() end
function thread_init()
  local draw, n, count = sysbench.rand[sysbench.opt.dist], sysbench.opt.n, {}
  for i = 1, n do count[i] = 0 end
  for i = 1, sysbench.opt.draws do local id = draw(1, n); count[id] = count[id] + 1 end
  print("draws " .. table.concat(count, " "))
end
`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, d := range Distributions() {
		if d == Zipfian {
			continue // sysbench 1.0 has none
		}
		out, err := exec.CommandContext(t.Context(), "sysbench", "--rand-seed=5", script, "--dist="+string(d),
			fmt.Sprintf("--n=%d", n), fmt.Sprintf("--draws=%d", count), "--events=1", "run").Output()
		m := regexp.MustCompile(`(?m)^draws (.*)$`).FindSubmatch(out)
		if err != nil || m == nil {
			t.Fatalf("sysbench: %v\n%s", err, out)
		}
		ours := make([]float64, n)
		for _, id := range draws(d, Shape{}, n, count) {
			ours[int(id)-1]++
		}
		var sum, worst float64
		for i, field := range strings.Fields(string(m[1])) {
			theirs, err := strconv.ParseFloat(field, 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += (theirs - ours[i]) / count
			worst = max(worst, sum, -sum)
		}
		// Exceeded by chance once in 10,000 times (Kolmogorov and Smirnov).
		if worst > 0.0071 {
			t.Errorf("%s differs from sysbench's by %.4f", d, worst)
		}
	}
}
