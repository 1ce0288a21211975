package lab_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/faultlab/faultlab/lab"
)

func TestCredentialsDoNotShowTheirPassword(t *testing.T) {
	c := lab.Credentials{User: "u", Password: "secret"}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if got, want := fmt.Sprintf(verb, c), "u:***"; got != want {
			t.Errorf("%s: got %q, want %q", verb, got, want)
		}
	}
}

func TestAHintLeavesTheErrorWhatItIs(t *testing.T) {
	err := lab.Hint(fmt.Errorf("%w x", lab.ErrCannot), "do y")
	if !errors.Is(err, lab.ErrCannot) || err.Error() != "this machine cannot x" {
		t.Errorf("got %v", err)
	}
	var h *lab.HintError
	if !errors.As(err, &h) || !cmp.Equal(h.Hints, []string{"do y"}) {
		t.Errorf("got %+v", h)
	}
	if lab.Hint(nil, "do y") != nil {
		t.Error("a hint made an error of none")
	}
}

func TestHealthSpeaksOfItsNodes(t *testing.T) {
	h := lab.Health{Nodes: []lab.NodeHealth{
		{Name: "n1", Role: "primary"},
		{Name: "n2", Role: "secondary", Lag: 7, Problems: []string{"is RECOVERING", "is read-only"}},
		{Name: "n3", Role: "secondary", Lag: -1},
	}}
	if d := cmp.Diff([]string{"n2: is RECOVERING", "n2: is read-only"}, h.Problems()); d != "" {
		t.Errorf("problems (-want +got):\n%s", d)
	}
	if d := cmp.Diff(map[string]string{"n1": "primary", "n2": "secondary", "n3": "secondary"}, h.Roles()); d != "" {
		t.Errorf("roles (-want +got):\n%s", d)
	}
	if h.CaughtUp(1000) {
		t.Error("a node whose lag cannot be told is taken for caught up")
	}
	h.Nodes[2].Lag = 0
	for slack, want := range map[int64]bool{6: false, 7: true} {
		if got := h.CaughtUp(slack); got != want {
			t.Errorf("caught up within %d: got %v, want %v", slack, got, want)
		}
	}
}
