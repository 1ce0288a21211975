package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/netem"
)

// impairmentHelp is how an impairment is written, for the help of commands that
// take one.
const impairmentHelp = `An impairment is given as options, or in their place as one text of the same
words: 'rtt 0.6ms loss 1%'. What is not given is not done, so it says all that
a link is to be; 'none' is nothing at all. Values of more than one word are
quoted: --jitter '50us 25%'. Packets keep their order under jitter. A loss is
CHANCE [CORRELATION], or gemodel P [R [BAD [GOOD]]] (Gilbert-Elliott, bursts),
or state P13 [P31 [P32 [P23 P14]]] (of 4 states).`

// impairmentFlags are the words of the text form.
func impairmentFlags() []cli.Flag {
	out := []cli.Flag{&cli.StringFlag{Name: "rtt", Usage: "`TIME`: delay there and back, half of it each way"}}
	for _, w := range netem.Words() {
		if w.Value == "" {
			out = append(out, &cli.BoolFlag{Name: w.Name, Usage: w.About})
			continue
		}
		value, others, _ := strings.Cut(w.Value, " | ")
		if others != "" {
			value += " ..."
		}
		out = append(out, &cli.StringFlag{Name: w.Name, Usage: "`" + value + "`: " + w.About})
	}
	return out
}

// askedFor reads an impairment from a command's options, or from its text if
// that is not empty. roundTrip tells that the delay was given as rtt. Nothing
// is left to be found wrong with it later.
func askedFor(ctx *cli.Context, text string) (i netem.Impairment, roundTrip bool, err error) {
	var given []string
	for _, f := range impairmentFlags() {
		if name := f.Names()[0]; ctx.IsSet(name) {
			given = append(given, name)
		}
	}
	switch {
	case text != "" && len(given) > 0:
		return i, false, lab.Hint(usage("the impairment is given twice, as %q and as --%s", text, given[0]), "write all of it in one of the two forms")
	case text == "" && len(given) == 0:
		return i, false, lab.Hint(usage("%s needs an impairment", strings.TrimPrefix(ctx.Command.HelpName, "faultlab ")),
			"as options (--rtt 0.6ms --loss 1%) or as one text ('rtt 0.6ms loss 1%'); "+ctx.Command.HelpName+" --help lists them")
	case ctx.IsSet("rtt") && ctx.IsSet("delay"):
		return i, false, lab.Hint(usage("both --rtt and --delay are given"), "delay is one way, rtt is there and back: keep one of them")
	case text != "":
		if i, roundTrip, err = netem.Parse(text); err != nil {
			return i, false, refused("", err)
		}
	default:
		for _, name := range given {
			value := ctx.String(name)
			if w, ok := ctx.Value(name).(bool); ok {
				if !w {
					continue
				}
				value = ""
			}
			if err := i.Set(name, value); err != nil {
				return i, false, refused("--", err)
			}
		}
		roundTrip = ctx.IsSet("rtt")
	}
	if err := readDistribution(&i); err != nil {
		return i, false, err
	}
	if err := i.Validate(); err != nil {
		return i, false, refused("", err)
	}
	return i, roundTrip, nil
}

// refused is the error for an impairment that makes no sense.
func refused(prefix string, err error) error {
	var s *netem.SyntaxError
	if errors.As(err, &s) && s.Hint != "" {
		return lab.Hint(usage("%s%s", prefix, s.Message), s.Hint)
	}
	return usage("%s%s", prefix, err)
}

// readDistribution reads the table of a distribution that is a file's name.
func readDistribution(i *netem.Impairment) error {
	file := i.Distribution.Name
	probe := netem.Impairment{Jitter: 1, Distribution: i.Distribution}
	if file == "" || probe.Validate() == nil {
		return nil
	}
	const known = "known: uniform, normal, pareto, paretonormal; else the name of a file with a table, as iproute2 has them"
	text, err := os.ReadFile(file)
	if err != nil {
		return lab.Hint(usage("distribution: %s", err), known)
	}
	i.Distribution = netem.Distribution{Name: filepath.Base(file), Text: string(text)}
	probe.Distribution = i.Distribution
	if err := probe.Validate(); err != nil {
		return lab.Hint(usage("%s", strings.Replace(err.Error(), i.Distribution.Name, file, 1)), known)
	}
	return nil
}

// bothWays says what an impairment is called where it holds for two directions.
func bothWays(i netem.Impairment, roundTrip bool) string {
	if !roundTrip {
		return i.String()
	}
	return fmt.Sprintf("%s (rtt %s)", i, netem.FormatDuration(2*i.Delay))
}
