package netem

import (
	"fmt"
	"math"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// SyntaxError says what is wrong with a text and, if that can be told, how to
// mend it.
type SyntaxError struct{ Message, Hint string }

func (e *SyntaxError) Error() string { return e.Message }

func syntax(hint, format string, args ...any) error {
	return &SyntaxError{fmt.Sprintf(format, args...), hint}
}

var quantityRE = regexp.MustCompile(`^(-?)(\d{1,20}(?:\.\d{1,20})?)\s?([a-zA-Zµμ%/]*)$`)

// quantity reads one decimal number and one unit, exactly. units are what one
// of each unit is worth.
func quantity(what, s string, units map[string]int64, example, whole string) (int64, error) {
	m := quantityRE.FindStringSubmatch(s)
	if m == nil {
		return 0, syntax("write one number and one unit, such as "+example, "%s is not a %s", clip(s), what)
	}
	sign, number, unit := m[1], m[2], m[3]
	worth, known := units[unit]
	if !known {
		worth, known = units[strings.ToLower(unit)]
	}
	switch {
	case sign != "":
		return 0, syntax("", "%s %s is negative", what, s)
	case unit == "":
		return 0, syntax("write a unit too, such as "+example, "%s %s has no unit", what, s)
	case !known:
		return 0, syntax("such as "+example, "%q is not a unit of a %s", unit, what)
	}
	n, ok := new(big.Rat).SetString(number)
	if !ok {
		return 0, syntax("", "%s is not a %s", clip(s), what)
	}
	n.Mul(n, new(big.Rat).SetInt64(worth))
	switch {
	case !n.IsInt():
		return 0, syntax("", "%s %s is not a whole number of %s", what, s, whole)
	case n.Num().Cmp(big.NewInt(math.MaxInt64)) > 0:
		return 0, syntax("", "%s %s is too large", what, s)
	}
	return n.Num().Int64(), nil
}

var timeUnits = map[string]int64{
	"ns": 1, "us": 1e3, "µs": 1e3, "μs": 1e3, "ms": 1e6, "s": 1e9, "m": 60e9, "h": 3600e9,
}

// ParseDuration reads one decimal number and one unit: 250us, 0.6ms, 30m.
// Units are ns, us, ms, s, m and h. Unlike time.ParseDuration it refuses a
// number without unit (even 0), a sign, sums such as 1m30s, and whatever is not
// a whole number of nanoseconds: 0.6ms is 600,000 ns and nothing near it.
func ParseDuration(s string) (time.Duration, error) {
	m := quantityRE.FindStringSubmatch(s)
	if m != nil && m[1] == "" && m[3] == "" {
		return 0, syntax(fmt.Sprintf("did you mean %sms or %ss?", m[2], m[2]), "duration %s has no unit", s)
	}
	if m != nil && m[3] != "" && timeUnits[m[3]] == 0 {
		return 0, syntax("units are ns, us, ms, s, m, h", "%q is not a unit of time", m[3])
	}
	n, err := quantity("duration", s, timeUnits, "250us, 0.6ms, 90s or 30m", "nanoseconds")
	return time.Duration(n), err
}

// FormatDuration writes d so that ParseDuration reads exactly d again, in the
// unit that people use for it: 0.06ms, 500ms, 20s, 30m.
func FormatDuration(d time.Duration) string {
	switch {
	case d < 0:
		return d.String() // cannot be read again, and is never asked for
	case d >= time.Minute && d%time.Minute == 0:
		return strconv.FormatInt(int64(d/time.Minute), 10) + "m"
	case d >= time.Second:
		return decimal(int64(d), 9) + "s"
	case d == 0 || d >= 10*time.Microsecond:
		return decimal(int64(d), 6) + "ms"
	case d%time.Microsecond == 0:
		return decimal(int64(d), 3) + "us"
	}
	return decimal(int64(d), 0) + "ns"
}

// decimal writes n / 10^digits without zeros at its end.
func decimal(n int64, digits int) string {
	unit := int64(math.Pow10(digits))
	whole := strconv.FormatInt(n/unit, 10)
	if n%unit == 0 {
		return whole
	}
	return whole + "." + strings.TrimRight(fmt.Sprintf("%0*d", digits, n%unit), "0")
}

// Share is a part of a whole, in billionths: 1% is 10,000,000.
type Share uint32

// Whole is all of it, 100%.
const Whole Share = 1_000_000_000

// ParseShare reads a percentage: 1%, 0.001%, 100%. Less than 0.0000001% is not
// to be had.
func ParseShare(s string) (Share, error) {
	if m := quantityRE.FindStringSubmatch(s); m != nil && m[1] == "" && m[3] == "" {
		return 0, syntax(fmt.Sprintf("did you mean %s%%?", m[2]), "%s is not a percentage", s)
	}
	n, err := quantity("percentage", s, map[string]int64{"%": int64(Whole) / 100}, "0.1% or 25%", "billionths")
	if err != nil {
		return 0, err
	}
	if n > int64(Whole) {
		return 0, syntax("", "%s is more than 100%%", s)
	}
	return Share(n), nil
}

func (s Share) String() string { return decimal(int64(s), 7) + "%" }

func (s Share) float() float64 { return float64(s) / float64(Whole) }

// Uint32 is the share as kernel netem keeps it, of 2^32-1.
func (s Share) Uint32() uint32 {
	return uint32((uint64(s)*math.MaxUint32 + uint64(Whole)/2) / uint64(Whole))
}

// Rate is in bits a second.
type Rate int64

// ParseRate reads a rate in the units of tc that count bits: 10mbit is
// 10,000,000 bit/s. What tc calls mbps are bytes, which hardly anybody means:
// refused.
func ParseRate(s string) (Rate, error) {
	if m := quantityRE.FindStringSubmatch(s); m != nil && strings.HasSuffix(strings.ToLower(m[3]), "bps") {
		return 0, syntax("write kbit, mbit or gbit: bps means bytes to tc and bits to most", "%q is not a unit of a rate", m[3])
	}
	n, err := quantity("rate", s, map[string]int64{
		"bit": 1, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9,
	}, "500kbit, 10mbit or 1gbit", "bits a second")
	return Rate(n), err
}

func (r Rate) String() string {
	switch {
	case r >= 1e9:
		return decimal(int64(r), 9) + "gbit"
	case r >= 1e6:
		return decimal(int64(r), 6) + "mbit"
	case r >= 1e3:
		return decimal(int64(r), 3) + "kbit"
	}
	return decimal(int64(r), 0) + "bit"
}

// Bytes is an amount of data.
type Bytes int64

// ParseBytes reads an amount of data: 1600b, 32kb, 1mb, 1 kb being 1,024 bytes
// as with tc.
func ParseBytes(s string) (Bytes, error) {
	n, err := quantity("size", s, map[string]int64{"b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30}, "1600b, 32kb or 1mb", "bytes")
	return Bytes(n), err
}

func (b Bytes) String() string {
	switch {
	case b > 0 && b%(1<<30) == 0:
		return strconv.FormatInt(int64(b>>30), 10) + "gb"
	case b > 0 && b%(1<<20) == 0:
		return strconv.FormatInt(int64(b>>20), 10) + "mb"
	case b > 0 && b%(1<<10) == 0:
		return strconv.FormatInt(int64(b>>10), 10) + "kb"
	}
	return strconv.FormatInt(int64(b), 10) + "b"
}

// clip quotes what a person wrote, shortened where it is longer than a line.
func clip(s string) string {
	if r := []rune(s); len(r) > 40 {
		s = string(r[:40]) + "..."
	}
	return strconv.Quote(s)
}
