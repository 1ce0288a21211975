package scenarios

import (
	"errors"
	"strconv"
	"time"

	"github.com/faultlab/faultlab/netem"
)

// ParseDuration reads a duration as netem.ParseDuration does; its error is a
// Problem.
func ParseDuration(s string) (time.Duration, error) {
	d, hint, err := parseDuration(s)
	if err != nil {
		return 0, &Problem{Message: err.Error(), Hint: hint}
	}
	return d, nil
}

func parseDuration(s string) (d time.Duration, hint string, err error) {
	d, err = netem.ParseDuration(s)
	var syntax *netem.SyntaxError
	if errors.As(err, &syntax) {
		hint = syntax.Hint
	}
	return d, hint, err
}

// FormatDuration writes d so that ParseDuration reads exactly d again.
func FormatDuration(d time.Duration) string { return netem.FormatDuration(d) }

// clip quotes what a person wrote, shortened where it is longer than a line.
func clip(s string) string {
	if r := []rune(s); len(r) > 40 {
		s = string(r[:40]) + "..."
	}
	return strconv.Quote(s)
}
