package scenarios

import (
	"fmt"
	"math"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"time"
)

var (
	durationRE = regexp.MustCompile(`^(-?)(\d{1,20}(?:\.\d{1,20})?)\s?([a-zA-Zµμ]*)$`)
	units      = map[string]time.Duration{
		"ns": time.Nanosecond, "us": time.Microsecond, "µs": time.Microsecond, "μs": time.Microsecond,
		"ms": time.Millisecond, "s": time.Second, "m": time.Minute, "h": time.Hour,
	}
)

// ParseDuration reads one decimal number and one unit: 250us, 0.6ms, 30m.
// Units are ns, us, ms, s, m and h. Unlike time.ParseDuration it refuses a
// number without unit (even 0), a sign, sums such as 1m30s, and whatever is not
// a whole number of nanoseconds: 0.6ms is 600,000 ns and nothing near it.
func ParseDuration(s string) (time.Duration, error) {
	d, hint, err := parseDuration(s)
	if err != nil {
		return 0, &Problem{Message: err.Error(), Hint: hint}
	}
	return d, nil
}

func parseDuration(s string) (d time.Duration, hint string, err error) {
	m := durationRE.FindStringSubmatch(s)
	if m == nil {
		return 0, "write one number and one unit, such as 250us, 0.6ms, 90s or 30m", fmt.Errorf("%s is not a duration", clip(s))
	}
	sign, number, unit := m[1], m[2], m[3]
	switch {
	case sign != "":
		return 0, "", fmt.Errorf("duration %s is negative", s)
	case unit == "":
		return 0, fmt.Sprintf("did you mean %sms or %ss?", number, number), fmt.Errorf("duration %s has no unit", s)
	case units[unit] == 0:
		return 0, "units are ns, us, ms, s, m, h", fmt.Errorf("%q is not a unit of time", unit)
	}
	ns, ok := new(big.Rat).SetString(number)
	if !ok {
		return 0, "", fmt.Errorf("%s is not a duration", clip(s))
	}
	ns.Mul(ns, new(big.Rat).SetInt64(int64(units[unit])))
	switch {
	case !ns.IsInt():
		return 0, "", fmt.Errorf("duration %s is not a whole number of nanoseconds", s)
	case ns.Num().Cmp(big.NewInt(math.MaxInt64)) > 0:
		return 0, "", fmt.Errorf("duration %s is longer than 292 years", s)
	}
	return time.Duration(ns.Num().Int64()), "", nil
}

// FormatDuration writes d so that ParseDuration reads exactly d again, in the
// unit that people use for it: 0.06ms, 500ms, 20s, 30m.
func FormatDuration(d time.Duration) string {
	in := func(unit time.Duration, name string) string {
		whole := strconv.FormatInt(int64(d/unit), 10)
		digits := len(strconv.FormatInt(int64(unit), 10)) - 1
		frac := strings.TrimRight(fmt.Sprintf("%0*d", digits, d%unit), "0")
		if frac != "" {
			frac = "." + frac
		}
		return whole + frac + name
	}
	switch {
	case d < 0:
		return d.String() // cannot be read again, and cannot come from a scenario
	case d >= time.Minute && d%time.Minute == 0:
		return strconv.FormatInt(int64(d/time.Minute), 10) + "m"
	case d >= time.Second:
		return in(time.Second, "s")
	case d == 0 || d >= 10*time.Microsecond:
		return in(time.Millisecond, "ms")
	case d%time.Microsecond == 0:
		return in(time.Microsecond, "us")
	}
	return in(time.Nanosecond, "ns")
}

// clip quotes what a person wrote, shortened where it is longer than a line.
func clip(s string) string {
	if r := []rune(s); len(r) > 40 {
		s = string(r[:40]) + "..."
	}
	return strconv.Quote(s)
}
