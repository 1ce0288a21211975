package netem

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The text form of an impairment is a list of clauses, each a word and its
// values, in the words of tc's netem:
//
//	delay 300us jitter 50us 25% distribution normal loss 1% 25% duplicate 1%
//	reorder 25% 50% gap 5 corrupt 0.1% rate 10mbit burst 32kb limit 1000
//	slot 1ms 2ms packets 10 bytes 15kb seed 42
//
// loss is "loss CHANCE [CORRELATION]", "loss gemodel P [R [BAD [GOOD]]]" or
// "loss state P13 [P31 [P32 [P23 P14]]]". "rtt 0.6ms" is read as half of that
// delay, and "partition" and "none" stand alone.

// clause is one word of the text form.
type clause struct {
	word  string
	value string // how its values are written
	about string
	set   func(i *Impairment, values []string) error
	text  func(i Impairment) string // "" where there is nothing to say
}

// Word describes one word of the text form, for help texts and for readers of
// forms that have a key for each.
type Word struct{ Name, Value, About string }

// Words lists the words of the text form in their order.
func Words() []Word {
	var out []Word
	for _, c := range clauses() {
		out = append(out, Word{c.word, c.value, c.about})
	}
	return out
}

func clauses() []clause {
	return []clause{
		{"delay", "TIME", "added to every packet, one way",
			func(i *Impairment, v []string) error {
				if err := one(v[:min(len(v), 1)], "TIME", &i.Delay, ParseDuration); err != nil || len(v) < 2 {
					return err
				}
				return setJitter(i, v[1:]) // tc's own way to write it
			},
			func(i Impairment) string { return nonzero(i.Delay, FormatDuration) }},
		{"jitter", "TIME [CORRELATION]", "how far delays lie from it", setJitter,
			func(i Impairment) string {
				return with(nonzero(i.Jitter, FormatDuration), nonzero(i.JitterCorrelation, Share.String))
			}},
		{"distribution", "NAME|FILE", "of jitter: uniform (default), normal, pareto, paretonormal, or a table as of iproute2",
			func(i *Impairment, v []string) error {
				return one(v, "NAME|FILE", &i.Distribution, func(s string) (Distribution, error) { return Distribution{Name: s}, nil })
			},
			func(i Impairment) string { return i.Distribution.Name }},
		{"loss", "CHANCE [CORRELATION] | gemodel P [R [BAD [GOOD]]] | state P13 [P31 [P32 [P23 P14]]]", "packets lost, at random or in bursts",
			setLoss, lossText},
		{"duplicate", "CHANCE [CORRELATION]", "packets that arrive twice", random(func(i *Impairment) *Random { return &i.Duplicate }),
			func(i Impairment) string { return i.Duplicate.text() }},
		{"reorder", "CHANCE [CORRELATION]", "packets that go ahead of those that wait for their delay",
			random(func(i *Impairment) *Random { return &i.Reorder }),
			func(i Impairment) string { return i.Reorder.text() }},
		{"gap", "N", "only every N-th packet may be reordered",
			func(i *Impairment, v []string) error { return one(v, "N", &i.Gap, count) },
			func(i Impairment) string { return nonzero(i.Gap, strconv.Itoa) }},
		{"corrupt", "CHANCE [CORRELATION]", "packets that arrive with one bit changed",
			random(func(i *Impairment) *Random { return &i.Corrupt }),
			func(i Impairment) string { return i.Corrupt.text() }},
		{"rate", "RATE", "bits a second, such as 10mbit",
			func(i *Impairment, v []string) error { return one(v, "RATE", &i.Rate, ParseRate) },
			func(i Impairment) string { return nonzero(i.Rate, Rate.String) }},
		{"burst", "SIZE", "what may pass at once before the rate holds, such as 32kb",
			func(i *Impairment, v []string) error { return one(v, "SIZE", &i.Burst, ParseBytes) },
			func(i Impairment) string { return nonzero(i.Burst, Bytes.String) }},
		{"limit", "N", "packets that the link holds before it drops new ones",
			func(i *Impairment, v []string) error { return one(v, "N", &i.Limit, count) },
			func(i Impairment) string { return nonzero(i.Limit, strconv.Itoa) }},
		{"partition", "", "every packet is dropped, silently",
			func(i *Impairment, v []string) error {
				i.Partition = true
				return nothing(v)
			},
			func(i Impairment) string { return "" }},
		{"slot", "MIN [MAX] [packets N] [bytes SIZE]", "packets leave together, every MIN to MAX", setSlot, slotText},
		{"seed", "N", "makes random faults repeatable",
			func(i *Impairment, v []string) error {
				return one(v, "N", &i.Seed, func(s string) (uint64, error) {
					n, err := strconv.ParseUint(s, 10, 64)
					if err != nil || n == 0 {
						return 0, fmt.Errorf("%s is not a whole number from 1 on", clip(s))
					}
					return n, nil
				})
			},
			func(i Impairment) string {
				return nonzero(i.Seed, func(n uint64) string { return strconv.FormatUint(n, 10) })
			}},
	}
}

// Set puts one clause: a word and what is written behind it. "rtt" sets the
// delay of one direction, half of it.
func (i *Impairment) Set(word, value string) error {
	values := strings.Fields(value)
	if word == "rtt" {
		if err := one(values, "TIME", &i.Delay, ParseDuration); err != nil {
			return in("rtt", err)
		}
		if i.Delay%2 != 0 {
			return syntax("", "rtt %s has no half in whole nanoseconds", value)
		}
		i.Delay /= 2
		return nil
	}
	for _, c := range clauses() {
		if c.word == word {
			return in(word, c.set(i, values))
		}
	}
	return unknown(word)
}

func unknown(word string) error {
	return syntax("known: "+strings.Join(names(), ", "), "%s is not an impairment", clip(word))
}

// names are all words that a clause can begin with.
func names() []string {
	out := []string{"rtt"}
	for _, c := range clauses() {
		out = append(out, c.word)
	}
	return out
}

// within are the words that stand among the values of a clause, and units
// that were written apart from their number, which is another mistake.
var within = []string{"random", "gemodel", "state", "packets", "bytes", "ns", "us", "ms", "bit", "kbit", "mbit", "gbit", "kb", "mb", "gb"}

var letters = regexp.MustCompile(`^[a-z]{2,}$`)

func in(word string, err error) error {
	if err == nil {
		return nil
	}
	if s, ok := err.(*SyntaxError); ok {
		return &SyntaxError{word + ": " + s.Message, s.Hint}
	}
	return &SyntaxError{Message: word + ": " + err.Error()}
}

// Parse reads the text form and validates it. roundTrip tells that it was given
// as rtt, which is meant for both directions of a link. A distribution that
// is none of the four known has no table yet, and is not judged.
func Parse(s string) (i Impairment, roundTrip bool, err error) {
	words := strings.Fields(s)
	if len(words) == 0 {
		return i, false, syntax("such as: delay 0.3ms loss 1%; or none", "an impairment is empty")
	}
	if len(words) == 1 && words[0] == "none" {
		return i, false, nil
	}
	known := names()
	seen := map[string]bool{}
	for at := 0; at < len(words); {
		word, end := words[at], at+1
		for end < len(words) && !slices.Contains(known, words[end]) {
			end++
		}
		if seen[word] {
			return i, false, syntax("", "%s is given twice", word)
		}
		for _, v := range words[at+1 : end] { // a misspelled clause looks like a value
			if word != "distribution" && letters.MatchString(v) && !slices.Contains(within, v) {
				return i, false, unknown(v)
			}
		}
		seen[word] = true
		if err := i.Set(word, strings.Join(words[at+1:end], " ")); err != nil {
			return i, false, err
		}
		at = end
	}
	if seen["rtt"] && seen["delay"] {
		return i, false, syntax("delay is one way, rtt is there and back: keep one of them", "both rtt and delay are given")
	}
	judged := i
	if !judged.Distribution.known() {
		judged.Distribution = Distribution{}
	}
	return i, seen["rtt"], judged.Validate()
}

// String is the text form, in canonical order and units: Parse reads exactly
// the same impairment again.
func (i Impairment) String() string {
	if i.Partition {
		return "partition"
	}
	var out []string
	for _, c := range clauses() {
		if t := c.text(i); t != "" {
			out = append(out, c.word, t)
		}
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, " ")
}

// one reads a clause of exactly one value.
func one[T any](v []string, what string, to *T, parse func(string) (T, error)) (err error) {
	if len(v) != 1 {
		return fmt.Errorf("takes one value, %s, not %d", what, len(v))
	}
	*to, err = parse(v[0])
	return err
}

func nothing(v []string) error {
	if len(v) > 0 {
		return fmt.Errorf("takes no value, not %s", clip(strings.Join(v, " ")))
	}
	return nil
}

func count(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%s is not a whole number from 1 on", clip(s))
	}
	return n, nil
}

// shares reads at most as many percentages as there are places for.
func shares(v []string, to ...*Share) error {
	if len(v) == 0 || len(v) > len(to) {
		return fmt.Errorf("takes 1 to %d percentages, not %d", len(to), len(v))
	}
	for n, s := range v {
		var err error
		if *to[n], err = ParseShare(s); err != nil {
			return err
		}
	}
	return nil
}

func random(of func(*Impairment) *Random) func(*Impairment, []string) error {
	return func(i *Impairment, v []string) error {
		r := of(i)
		*r = Random{}
		return shares(v, &r.Chance, &r.Correlation)
	}
}

func (r Random) text() string {
	return with(nonzero(r.Chance, Share.String), nonzero(r.Correlation, Share.String))
}

func setJitter(i *Impairment, v []string) error {
	i.JitterCorrelation = 0
	if len(v) == 2 {
		if err := shares(v[1:], &i.JitterCorrelation); err != nil {
			return err
		}
		v = v[:1]
	}
	return one(v, "TIME [CORRELATION]", &i.Jitter, ParseDuration)
}

func setLoss(i *Impairment, v []string) error {
	i.Loss, i.Gilbert, i.States = Random{}, GilbertElliott{}, FourState{}
	model := ""
	if len(v) > 0 {
		model = v[0]
	}
	switch model {
	case "gemodel":
		g := GilbertElliott{BadLoss: Whole}
		err := shares(v[1:], &g.P, &g.R, &g.BadLoss, &g.GoodLoss)
		if len(v) == 2 {
			g.R = Whole - g.P
		}
		i.Gilbert = g
		return err
	case "state":
		s := FourState{P23: Whole}
		err := shares(v[1:], &s.P13, &s.P31, &s.P32, &s.P23, &s.P14)
		if len(v) == 2 {
			s.P31 = Whole - s.P13
		}
		i.States = s
		return err
	case "random":
		v = v[1:]
	}
	return shares(v, &i.Loss.Chance, &i.Loss.Correlation)
}

func lossText(i Impairment) string {
	g, s := i.Gilbert, i.States
	join := func(model string, all ...Share) string {
		out := model
		for _, p := range all {
			out += " " + p.String()
		}
		return out
	}
	switch {
	case g != GilbertElliott{}:
		return join("gemodel", g.P, g.R, g.BadLoss, g.GoodLoss)
	case s != FourState{}:
		return join("state", s.P13, s.P31, s.P32, s.P23, s.P14)
	}
	return i.Loss.text()
}

func setSlot(i *Impairment, v []string) (err error) {
	s := Slot{}
	times := 0
	for n := 0; n < len(v); n++ {
		switch v[n] {
		case "packets", "bytes":
			if n+1 == len(v) {
				return fmt.Errorf("%s without a number", v[n])
			}
			if v[n] == "packets" {
				s.Packets, err = count(v[n+1])
			} else {
				s.Bytes, err = ParseBytes(v[n+1])
			}
			n++
		default:
			var d time.Duration
			d, err = ParseDuration(v[n])
			switch times++; times {
			case 1:
				s.Min, s.Max = d, d
			case 2:
				s.Max = d
			default:
				return fmt.Errorf("takes one time or two, not %d", times)
			}
		}
		if err != nil {
			return err
		}
	}
	if times == 0 {
		return fmt.Errorf("takes the time between two slots")
	}
	i.Slot = s
	return nil
}

func slotText(i Impairment) string {
	s := i.Slot
	if s == (Slot{}) {
		return ""
	}
	out := FormatDuration(s.Min)
	if s.Max != s.Min {
		out += " " + FormatDuration(s.Max)
	}
	if s.Packets != 0 {
		out += " packets " + strconv.Itoa(s.Packets)
	}
	if s.Bytes != 0 {
		out += " bytes " + s.Bytes.String()
	}
	return out
}

func nonzero[T comparable](v T, format func(T) string) string {
	var zero T
	if v == zero {
		return ""
	}
	return format(v)
}

// with joins a value and what may follow it.
func with(value, more string) string {
	if value == "" || more == "" {
		return value
	}
	return value + " " + more
}
