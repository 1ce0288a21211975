package scenarios

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestALinkBetweenSitesIsALinkBetweenAllThatIsInThem(t *testing.T) {
	const head = `schema: 1
name: mine
question: What?
topologies: [mgr]
workload: {name: oltp_write_only}
baseline: {links: [{between: nodes, rtt: 0.1ms}, {between: [client, nodes], rtt: 0ms}]}
sites: {dc1: [n1, client], dc2: [n2, n3]}
conditions: [{name: far, links: [%s]}]
`
	for _, c := range []struct{ link, want string }{
		{"{between: [dc1, dc2], rtt: 5ms}", "client to n2, client to n3, n1 to n2, n1 to n3, n2 to client, n2 to n1, n3 to client, n3 to n1"},
		{"{from: dc1, to: n3, delay: 5ms}", "client to n3, n1 to n3"},
		{"{between: [dc2, dc2], rtt: 5ms}", "n2 to n3, n3 to n2"},
		{"{between: [nodes, dc2], rtt: 5ms}", "n1 to n2, n1 to n3, n2 to n1, n2 to n3, n3 to n1, n3 to n2"},
		{"{between: [dc1, dc2], rtt: 5ms}, {between: [dc2, dc2], rtt: 1ms}, {between: [dc1, dc1], rtt: 1ms}",
			"client to n1, client to n2, client to n3, n1 to client, n1 to n2, n1 to n3, n2 to client, n2 to n1, n2 to n3, n3 to client, n3 to n1, n3 to n2"},
	} {
		s, err := Load("mine.yaml", fmt.Appendf(nil, head, c.link))
		if err != nil {
			t.Errorf("%s: %v", c.link, err)
			continue
		}
		var got []string
		for _, l := range s.Conditions[0].Links {
			for _, p := range l.paths() {
				got = append(got, p.String())
			}
		}
		slices.Sort(got)
		if got := strings.Join(got, ", "); got != c.want {
			t.Errorf("%s: got %s, want %s", c.link, got, c.want)
		}
	}
}
