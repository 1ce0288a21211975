package cli

import (
	"bytes"
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/faultlab/faultlab/netem"
	"github.com/faultlab/faultlab/netem/probe"
)

func TestALinkAndItsWayBackAreMeasuredOnce(t *testing.T) {
	s := threeNodes()
	var states []netem.LinkState
	links, _ := linksOf(s, "n1", "n2", false)
	more, _ := linksOf(s, "client", "n1", true)
	for i, l := range append(links, more...) {
		l.Impairment.Loss.Chance = netem.Share(i + 1)
		states = append(states, netem.LinkState{Link: l})
	}
	checks := checksOf(states)
	if len(checks) != 2 {
		t.Fatalf("got %d checks, want n1 with n2, and client with n1", len(checks))
	}
	if c := checks[0]; c.From.Name != "n1" || c.To.Name != "n2" || c.There.Loss.Chance != 1 || c.Back.Loss.Chance != 2 {
		t.Errorf("n1 and n2: got %+v", c)
	}
	if c := checks[1]; c.From.Name != "client" || c.There.Loss.Chance != 3 || (c.Back != netem.Impairment{}) {
		t.Errorf("client and n1: got %+v, want nothing asked of the way back", c)
	}
}

// Echoes have no port, and a network has no address that must answer.
func TestWhatProbesWouldNotMeetIsNotMeasured(t *testing.T) {
	for text, want := range map[string]bool{"10.0.0.5": true, "2001:db8::1": true, "10.0.0.5:3306": false, "10.0.0.0/8": false} {
		to, err := targets([]string{text})
		if err != nil {
			t.Fatal(err)
		}
		c := checksOf([]netem.LinkState{{Link: netem.Link{To: to.endpoint(), Match: to}}})[0]
		if got := c.To.Addr.IsValid() || c.To.Addr6.IsValid(); got != want {
			t.Errorf("--to %s: can be measured: got %v, want %v", text, got, want)
		}
	}
	link := netem.Link{From: netem.Endpoint{Name: "web"}, To: netem.Endpoint{Name: "10.0.0.0/8"}, Match: []netem.Selector{{Prefix: netip.MustParsePrefix("10.0.0.0/8")}}}
	c := &command{stderr: &bytes.Buffer{}}
	got, err := c.measureLinks(t.Context(), []netem.LinkState{{Link: link}})
	if err != nil || len(got) != 1 || got[0].Not == "" || len(got[0].Lines) != 0 {
		t.Errorf("got %+v, %v, want a word why not", got, err)
	}
}

func TestAskedAndMeasuredStandSideBySide(t *testing.T) {
	all := []measured{{From: "n1", To: "n2", Lines: []probe.Line{
		{What: "rtt", Unit: "ms", Asked: 4, Measured: 4.1605, Low: 4.145, High: 4.185, OK: true},
		{What: "loss n1 to n2", Unit: "%", Asked: 1, Measured: 5, Low: 3, High: 7, Note: "50 of 1000"},
		{What: "loss n2 to n1", Unit: "%", OK: true, Note: "0 of 1000"},
		{What: "mtu", Unit: "bytes", Asked: 1500, Measured: 1500, Low: 1500, High: 1500, OK: true},
	}}, {From: "web", To: "10.0.0.0/8", Not: "no single address"}}
	var out bytes.Buffer
	c := &command{stdout: &out}
	err := c.tellMeasured(all)
	var e *exit
	if !errors.As(err, &e) || e.code != exitInvalid {
		t.Errorf("got %v, want exit code %d for something wrong", err, exitInvalid)
	}
	want := `
FROM  TO          WHAT  ASKED       MEASURED    BETWEEN                      
n1    n2          rtt   4.000 ms    4.160 ms    4.145 ms to 4.185 ms  ok     
n1    n2          loss  1%          5%          3% to 7%              WRONG  50 of 1000
n2    n1          loss  0%          0%          -                     ok     0 of 1000
n1    n2          mtu   1500 bytes  1500 bytes  -                     ok     
web   10.0.0.0/8  -     -           -           -                     -      no single address
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	all[0].Lines[1].OK = true
	if err := c.tellMeasured(all); err != nil {
		t.Errorf("nothing is wrong: got %v", err)
	}
}
