package netem

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestEveryClauseIsReadExactlyAndWrittenInOneForm(t *testing.T) {
	const pct = Whole / 100
	for _, c := range []struct {
		text      string
		want      Impairment
		canonical string // as text where empty
	}{
		{"none", Impairment{}, ""},
		{"delay 250us", Impairment{Delay: 250 * time.Microsecond}, "delay 0.25ms"},
		{"delay 0.5ms", Impairment{Delay: 500 * time.Microsecond}, ""},
		{"delay 0.5s", Impairment{Delay: 500 * time.Millisecond}, "delay 500ms"},
		{"delay 300s", Impairment{Delay: 300 * time.Second}, "delay 5m"},
		{"rtt 0.6ms", Impairment{Delay: 300 * time.Microsecond}, "delay 0.3ms"},
		{"delay 10ms 2ms 25%", Impairment{Delay: 10 * time.Millisecond, Jitter: 2 * time.Millisecond, JitterCorrelation: 25 * pct}, "delay 10ms jitter 2ms 25%"},
		{"distribution normal jitter 1ms delay 10ms", Impairment{Delay: 10 * time.Millisecond, Jitter: time.Millisecond, Distribution: Distribution{Name: "normal"}}, "delay 10ms jitter 1ms distribution normal"},
		{"loss 1%", Impairment{Loss: Random{Chance: pct}}, ""},
		{"loss 0.001%", Impairment{Loss: Random{Chance: 10_000}}, ""},
		{"loss 0.0000001%", Impairment{Loss: Random{Chance: 1}}, ""},
		{"loss random 1% 25%", Impairment{Loss: Random{pct, 25 * pct}}, "loss 1% 25%"},
		{"loss gemodel 1%", Impairment{Gilbert: GilbertElliott{pct, 99 * pct, Whole, 0}}, "loss gemodel 1% 99% 100% 0%"},
		{"loss gemodel 1% 10% 70% 0.1%", Impairment{Gilbert: GilbertElliott{pct, 10 * pct, 70 * pct, pct / 10}}, ""},
		{"loss state 1%", Impairment{States: FourState{P13: pct, P31: 99 * pct, P23: Whole}}, "loss state 1% 99% 0% 100% 0%"},
		{"loss state 1% 30% 5% 90% 0.1%", Impairment{States: FourState{pct, 30 * pct, 5 * pct, 90 * pct, pct / 10}}, ""},
		{"duplicate 1% 5%", Impairment{Duplicate: Random{pct, 5 * pct}}, ""},
		{"delay 10ms reorder 25% 50% gap 5", Impairment{Delay: 10 * time.Millisecond, Reorder: Random{25 * pct, 50 * pct}, Gap: 5}, ""},
		{"corrupt 0.1%", Impairment{Corrupt: Random{Chance: pct / 10}}, ""},
		{"rate 10mbit", Impairment{Rate: 10e6}, ""},
		{"rate 1gbit burst 32kb limit 500", Impairment{Rate: 1e9, Burst: 32 << 10, Limit: 500}, ""},
		{"rate 1500kbit", Impairment{Rate: 1.5e6}, "rate 1.5mbit"},
		{"partition", Impairment{Partition: true}, ""},
		{"slot 1ms", Impairment{Slot: Slot{Min: time.Millisecond, Max: time.Millisecond}}, ""},
		{"slot 1ms 2ms packets 10 bytes 15kb", Impairment{Slot: Slot{time.Millisecond, 2 * time.Millisecond, 10, 15 << 10}}, ""},
		{"loss 1% seed 42", Impairment{Loss: Random{Chance: pct}, Seed: 42}, ""},
		{"delay 1ms jitter 0.1ms 25% distribution pareto loss 1% 25% duplicate 1% reorder 25% 50% gap 5 corrupt 0.1% 5% rate 10mbit burst 32kb limit 1000 slot 1ms 2ms packets 10 bytes 15kb seed 42",
			Impairment{Delay: time.Millisecond, Jitter: 100 * time.Microsecond, JitterCorrelation: 25 * pct, Distribution: Distribution{Name: "pareto"},
				Loss: Random{pct, 25 * pct}, Duplicate: Random{pct, 0}, Reorder: Random{25 * pct, 50 * pct}, Gap: 5, Corrupt: Random{pct / 10, 5 * pct},
				Rate: 10e6, Burst: 32 << 10, Limit: 1000, Slot: Slot{time.Millisecond, 2 * time.Millisecond, 10, 15 << 10}, Seed: 42}, ""},
	} {
		got, roundTrip, err := Parse(c.text)
		if err != nil || roundTrip != strings.HasPrefix(c.text, "rtt") {
			t.Errorf("Parse(%q) = %t, %v", c.text, roundTrip, err)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("Parse(%q) differs (-want +got):\n%s", c.text, d)
		}
		if c.canonical == "" {
			c.canonical = c.text
		}
		if got.String() != c.canonical {
			t.Errorf("%q is written %q, want %q", c.text, got, c.canonical)
		}
	}
}

func TestNonsenseIsRefusedWithWhatIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"":                               "an impairment is empty",
		"delay":                          "delay: takes one value, TIME, not 0",
		"delay 5":                        "delay: duration 5 has no unit",
		"delay 5 ms":                     "delay: duration 5 has no unit",
		"delay -5ms":                     "delay: duration -5ms is negative",
		"delay 5sec":                     `delay: "sec" is not a unit of time`,
		"delay 0.5ns":                    "delay: duration 0.5ns is not a whole number of nanoseconds",
		"delay 1e3ms":                    `delay: "1e3ms" is not a duration`,
		"delay 0x10ms":                   `delay: "0x10ms" is not a duration`,
		"delay 301s":                     "delay 301s is longer than 5m",
		"delay 99999999999h":             "delay: duration 99999999999h is too large",
		"delay 1ms delay 2ms":            "delay is given twice",
		"delay 1ms rtt 2ms":              "both rtt and delay are given",
		"rtt 1ns":                        "rtt 1ns has no half in whole nanoseconds",
		"lag 5ms":                        `"lag" is not an impairment`,
		"5ms":                            `"5ms" is not an impairment`,
		"jitter 3s":                      "jitter 3s is longer than 2s",
		"jitter 1ms distribution bell":   "",
		"distribution normal":            "a distribution or correlation of jitter without jitter",
		"loss":                           "loss: takes 1 to 2 percentages, not 0",
		"loss 1":                         "loss: 1 is not a percentage",
		"loss 101%":                      "loss: 101% is more than 100%",
		"loss 0.00000001%":               "loss: percentage 0.00000001% is not a whole number of billionths",
		"loss 0% 25%":                    "a correlation of something that never happens",
		"loss gemodel":                   "loss: takes 1 to 4 percentages, not 0",
		"loss state 60% 10% 0% 100% 50%": "loss state: P13 60% and P14 50% are together more than 100%",
		"loss 1% 2% 3%":                  "loss: takes 1 to 2 percentages, not 3",
		"reorder 25%":                    "reorder without delay: with nothing waiting there is nothing to go ahead of",
		"delay 1ms gap 5":                "gap without reorder",
		"delay 1ms reorder 5% gap 0":     `gap: "0" is not a whole number from 1 on`,
		"rate 10":                        "rate: rate 10 has no unit",
		"rate 10mbps":                    `rate: "mbps" is not a unit of a rate`,
		"rate 10xbit":                    `rate: "xbit" is not a unit of a rate`,
		"rate 8001bit":                   "rate 8001 bit/s is not a whole number of bytes a second",
		"rate 1kbit":                     "rate 1kbit is less than 8kbit",
		"burst 32kb":                     "burst without rate",
		"rate 1mbit burst 100b":          "burst 100b is not 1600b to 1gb: it must hold at least one packet",
		"slot":                           "slot: takes the time between two slots",
		"slot packets 5":                 "slot: takes the time between two slots",
		"slot 2ms 1ms":                   "slot: 1ms is less than 2ms",
		"slot 1ms 2ms 3ms":               "slot: takes one time or two, not 3",
		"slot 1ms packets":               "slot: packets without a number",
		"seed 0":                         `seed: "0" is not a whole number from 1 on`,
		"partition 5%":                   `partition: takes no value, not "5%"`,
		"partition delay 5ms":            "partition drops every packet: nothing else can be done to them",
		"rtt 5ms losss 1%":               `"losss" is not an impairment`,
		"rtt 5ms los 1%":                 `"los" is not an impairment`,
		"rate 10 mbit":                   "rate: takes one value, RATE, not 2",
		"none delay 5ms":                 `"none" is not an impairment`,
		"delay 1ms\x00":                  "delay: \"1ms\\x00\" is not a duration",
	} {
		_, _, err := Parse(text)
		got := ""
		if err != nil {
			got, _, _ = strings.Cut(err.Error(), "\n")
		}
		if got != want {
			t.Errorf("Parse(%q): %q, want %q", text, got, want)
		}
	}
	var s *SyntaxError
	if _, _, err := Parse("delay 5"); !errors.As(err, &s) || s.Hint != "did you mean 5ms or 5s?" {
		t.Errorf("hint %+v", s)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"none", "rtt 0.6ms", "delay 1ms jitter 0.1ms 25% distribution pareto loss gemodel 1% 2% 3% 4% reorder 25% 50% gap 5 rate 10mbit burst 32kb slot 1ms 2ms packets 10 bytes 15kb seed 42", "loss state 1%", "partition"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		i, _, err := Parse(s)
		if err != nil {
			if err.Error() == "" || strings.Contains(err.Error(), "%!") && !strings.Contains(s, "%!") {
				t.Errorf("Parse(%q): bad message %q", s, err)
			}
			return
		}
		again, _, err := Parse(i.String())
		if err != nil || again != i {
			t.Errorf("Parse(%q) = %+v, written %q, read again %+v, %v", s, i, i, again, err)
		}
	})
}

func TestALinksSelectorsAreBothKindsOfAddressesOrWhatItMatches(t *testing.T) {
	e := Endpoint{Name: "n2", Addr: addr("198.18.0.2"), Addr6: addr("2001:2::2")}
	if d := cmp.Diff("[198.18.0.2/32 2001:2::2/128]", stringOf(Link{To: e}.Selectors())); d != "" {
		t.Error(d)
	}
	m := []Selector{{Prefix: prefix("10.0.0.0/8"), Port: 3306}, {Prefix: prefix("2001:2::/48"), Port: 3306}}
	if d := cmp.Diff("[10.0.0.0/8:3306 [2001:2::/48]:3306]", stringOf(Link{To: e, Match: m}.Selectors())); d != "" {
		t.Error(d)
	}
	for want, l := range map[string]Link{
		"link a to n2: n2 has no address":               {To: Endpoint{Name: "n2"}},
		"link a to n2: delay 1ms is negative":           {To: e, Impairment: Impairment{Delay: -time.Millisecond}},
		"link a to n2: 10.0.0.1/8 is not a network":     {To: e, Match: []Selector{{Prefix: prefix("10.0.0.1/8")}}},
		"link a to n2: invalid Prefix is not a network": {To: e, Match: []Selector{{}}},
	} {
		l.From.Name, l.To.Name = "a", "n2"
		if err := l.Validate(); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
