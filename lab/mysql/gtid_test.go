package mysql

import (
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	u1 = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
	u2 = "4f22fa47-71ca-11e1-9e33-c80aa9429562"
)

func mustParse(t *testing.T, s string) GTIDSet {
	t.Helper()
	set, err := ParseGTIDSet(s)
	if err != nil {
		t.Fatalf("ParseGTIDSet(%q): %v", s, err)
	}
	return set
}

func TestGTIDSetsAreReadAsServersWriteThem(t *testing.T) {
	for _, c := range []struct {
		in   string
		want GTIDSet
	}{
		{"", GTIDSet{}},
		{u1 + ":1", GTIDSet{u1: {{1, 1}}}},
		{u1 + ":1-5:7:9-11", GTIDSet{u1: {{1, 5}, {7, 7}, {9, 11}}}},
		{u1 + ":1-5,\n" + u2 + ":1-3", GTIDSet{u1: {{1, 5}}, u2: {{1, 3}}}},
		{strings.ToUpper(u1) + ":4", GTIDSet{u1: {{4, 4}}}},
		// Out of order, touching and overlapping.
		{u1 + ":7-9:1-3:4:2-5", GTIDSet{u1: {{1, 5}, {7, 9}}}},
		{u1 + ":1-2, " + u1 + ":3-4", GTIDSet{u1: {{1, 4}}}},
		// A tag holds for the intervals behind it, and no tag for those before.
		{u1 + ":1-5:a:1-2:9:b:3", GTIDSet{u1: {{1, 5}}, u1 + ":a": {{1, 2}, {9, 9}}, u1 + ":b": {{3, 3}}}},
		{u1 + ":TAG:1", GTIDSet{u1 + ":tag": {{1, 1}}}},
		// The greatest number that a server gives.
		{u1 + ":1-9223372036854775806:5", GTIDSet{u1: {{1, math.MaxInt64 - 1}}}},
	} {
		got, err := ParseGTIDSet(c.in)
		if err != nil {
			t.Errorf("ParseGTIDSet(%q): %v", c.in, err)
			continue
		}
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(interval{})); diff != "" {
			t.Errorf("ParseGTIDSet(%q) differs (-want +got):\n%s", c.in, diff)
		}
	}
}

func TestWhatIsNoGTIDSetIsRefused(t *testing.T) {
	for _, in := range []string{
		u1, u1 + ":", u1 + "::1", ":1-5", u1 + ":tag", u1 + ":0", u1 + ":5-4", u1 + ":-1", u1 + ":1-", u1 + ":1-x",
		u1 + ":x-1", u1 + ":1-2-3", u1 + ":1-9223372036854775807", u1 + ":99999999999999999999",
		"0-1-42", // MariaDB's
	} {
		if got, err := ParseGTIDSet(in); err == nil {
			t.Errorf("ParseGTIDSet(%q): got %v, want an error", in, got)
		}
	}
}

func TestMissingCountsWhatTheOtherLacks(t *testing.T) {
	for _, c := range []struct {
		s, other string
		want     int64
	}{
		{"", "", 0},
		{"", u1 + ":1-5", 0},
		{u1 + ":1-5", "", 5},
		{u1 + ":1-5", u1 + ":1-5", 0},
		{u1 + ":1-5", u1 + ":1-9", 0},
		{u1 + ":1-10", u1 + ":1-3:5-6:9-20", 3},
		{u1 + ":1-3:7-9", u1 + ":2-8", 2},
		{u1 + ":1-5", u2 + ":1-5", 5},
		{u1 + ":1-5:a:1-2", u1 + ":1-5", 2},
		{u1 + ":1-5," + u2 + ":1-2", u1 + ":1-4," + u2 + ":2", 2},
	} {
		if got := mustParse(t, c.s).Missing(mustParse(t, c.other)); got != c.want {
			t.Errorf("%q: got %d missing from %q, want %d", c.s, got, c.other, c.want)
		}
	}
}

func FuzzGTIDSetsHoldTheirRules(f *testing.F) {
	for _, s := range []string{"", u1 + ":1-5:7", u1 + ":1-5:a:1-2,\n" + u2 + ":3", u1 + ":7-9:1-3:4:2-5", u1 + ":1-9223372036854775806", "a:1,b:2-"} {
		f.Add(s, u1+":2-4")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		sa, err := ParseGTIDSet(a)
		if err != nil {
			return
		}
		for key, ivs := range sa {
			if len(ivs) == 0 {
				t.Errorf("%q: %q has no interval", a, key)
			}
			for i, iv := range ivs {
				if iv.first < 1 || iv.last < iv.first || i > 0 && iv.first <= ivs[i-1].last+1 {
					t.Errorf("%q: intervals %v of %q are not ascending and apart", a, ivs, key)
				}
			}
		}
		if n := sa.Missing(sa); n != 0 {
			t.Errorf("%q lacks %d of itself", a, n)
		}
		sb, err := ParseGTIDSet(b)
		if err != nil {
			return
		}
		both := mustParse(t, a+","+b)
		if got, want := sa.Missing(both)+sb.Missing(both), int64(0); got != want {
			t.Errorf("%q and %q together lack %d of their own", a, b, got)
		}
		if keys := slices.Collect(maps.Keys(sa)); len(keys) == 1 { // more could exceed an int64
			if n := sa.Missing(sb); n < 0 || n > sa.Missing(GTIDSet{}) {
				t.Errorf("%q: got %d missing from %q, of %d", a, n, b, sa.Missing(GTIDSet{}))
			}
		}
	})
}
