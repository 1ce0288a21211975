package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/faultlab/faultlab/results"
)

// none stands where there is no figure.
const none = "-"

// rate is a figure of transactions a second: whole ones, unless they are few.
func rate(x float64) string {
	switch {
	case math.IsNaN(x) || math.IsInf(x, 0):
		return none
	case math.Abs(x) >= 100:
		return thousands(int64(math.Round(x)))
	}
	return strconv.FormatFloat(x, 'f', 1, 64)
}

// thousands groups digits: 12,345.
func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	digits := strings.TrimPrefix(s, "-")
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return s[:len(s)-len(strings.TrimPrefix(s, "-"))] + digits
}

func rates(ci *[2]float64) string {
	if ci == nil {
		return none
	}
	return rate(ci[0]) + ".." + rate(ci[1])
}

// millis is a response time to three digits.
func millis(ms float64) string {
	switch {
	case ms >= 100:
		return thousands(int64(math.Round(ms)))
	case ms >= 10:
		return strconv.FormatFloat(ms, 'f', 1, 64)
	}
	return strconv.FormatFloat(ms, 'f', 2, 64)
}

// rtt is a round trip to the microsecond, without useless zeros.
func rtt(ms float64) string {
	if ms >= 100 {
		return strconv.FormatFloat(ms, 'f', 1, 64)
	}
	return strconv.FormatFloat(math.Round(ms*1000)/1000, 'f', -1, 64)
}

// change is a ratio as a difference: 0.86 is "-14%".
func change(ratio float64) string { return percents(ratio)[0] + "%" }

// changes is a ratio with its interval: "-14% (-17..-11)".
func changes(ratio float64, ci *[2]float64) string {
	if ci == nil {
		return change(ratio)
	}
	p := percents(ratio, ci[0], ci[1])
	return fmt.Sprintf("%s%% (%s..%s)", p[0], p[1], p[2])
}

// percents writes ratios as differences with a sign, all to the same digit:
// tenths where all are small, for there a tenth matters.
func percents(ratios ...float64) []string {
	digits := 1
	for _, r := range ratios {
		if math.Abs(r-1) >= 0.0995 {
			digits = 0
		}
	}
	out := make([]string, len(ratios))
	for i, r := range ratios {
		out[i] = strconv.FormatFloat(100*(r-1), 'f', digits, 64)
		if digits == 0 && strings.Trim(out[i], "-0") == "" { // on which side of nothing?
			out[i] = strconv.FormatFloat(100*(r-1), 'f', 1, 64)
		}
		if strings.Trim(out[i], "-0.") == "" {
			out[i] = "0"
		} else if r > 1 {
			out[i] = "+" + out[i]
		}
	}
	return out
}

// versus is a comparison as a table has it.
func versus(r *results.Ratio) string {
	switch {
	case r == nil:
		return none
	case r.Outcome == inconclusive:
		return fmt.Sprintf("%s (%s)", inconclusive, count(int64(r.Pairs), "pair"))
	case r.Outcome == notDetected && r.CI95 != nil:
		p := percents(r.CI95[0], r.CI95[1])
		return fmt.Sprintf("%s (%s..%s)", notDetected, p[0], p[1])
	case r.Outcome == notDetected:
		return notDetected
	}
	return changes(r.Ratio, r.CI95)
}

func count(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return thousands(n) + " " + thing + "s"
}

// span is a time as people say it: "4 min 51 s".
func span(d time.Duration) string {
	d = d.Round(time.Second)
	h, m, s := int(d.Hours()), int(d.Minutes())%60, int(d.Seconds())%60
	switch {
	case h > 0:
		return fmt.Sprintf("%d h %d min", h, m)
	case m > 0:
		return fmt.Sprintf("%d min %d s", m, s)
	}
	return fmt.Sprintf("%d s", s)
}

// clean takes control characters out of text that came from servers and files,
// so that it cannot drive a terminal or break a line.
func clean(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s))
}
