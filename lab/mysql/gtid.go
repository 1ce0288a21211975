package mysql

import (
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"
)

// GTIDSet is a set of transactions as the server writes it:
// "uuid:1-5:7,uuid[:tag]:1-3".
type GTIDSet map[string][]interval

type interval struct{ first, last int64 }

// maxGTID is the greatest number that a server gives a transaction.
const maxGTID = math.MaxInt64 - 1

// ParseGTIDSet reads a GTID set. White space and line breaks are allowed, as
// the server itself puts them in.
func ParseGTIDSet(s string) (GTIDSet, error) {
	set := GTIDSet{}
	for part := range strings.SplitSeq(s, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		fields := strings.Split(part, ":")
		source := strings.ToLower(fields[0])
		key, intervals := source, 0
		if source == "" {
			return nil, fmt.Errorf("gtid set: %q names no server", part)
		}
		for _, f := range fields[1:] {
			a, b, isRange := strings.Cut(f, "-")
			first, err := strconv.ParseInt(a, 10, 64)
			if err != nil {
				// Since 8.3 a tag may stand before its intervals.
				if f == "" || isRange {
					return nil, fmt.Errorf("gtid set: %q is not an interval", f)
				}
				key = source + ":" + strings.ToLower(f)
				continue
			}
			intervals++
			last := first
			if isRange {
				if last, err = strconv.ParseInt(b, 10, 64); err != nil {
					return nil, fmt.Errorf("gtid set: %q is not an interval", f)
				}
			}
			if first < 1 || last < first || last > maxGTID {
				return nil, fmt.Errorf("gtid set: %q is not an interval", f)
			}
			set[key] = append(set[key], interval{first, last})
		}
		if intervals == 0 {
			return nil, fmt.Errorf("gtid set: %q has no interval", part)
		}
	}
	for k := range set {
		set[k] = merge(set[k])
	}
	return set, nil
}

// merge sorts intervals and joins those that touch or overlap.
func merge(in []interval) []interval {
	sort.Slice(in, func(i, j int) bool { return in[i].first < in[j].first })
	var out []interval
	for _, iv := range in {
		if n := len(out); n > 0 && iv.first <= out[n-1].last+1 {
			out[n-1].last = max(out[n-1].last, iv.last)
			continue
		}
		out = append(out, iv)
	}
	return out
}

// Missing counts the transactions of s that are not in other.
func (s GTIDSet) Missing(other GTIDSet) int64 {
	var n int64
	for key, ivs := range s {
		for _, iv := range ivs {
			n += iv.last - iv.first + 1
			for _, o := range other[key] {
				lo, hi := max(iv.first, o.first), min(iv.last, o.last)
				if lo <= hi {
					n -= hi - lo + 1
				}
			}
		}
	}
	return n
}
