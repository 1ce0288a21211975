//go:build integration

package qdisc

import (
	"errors"
	"os"
	"testing"

	"github.com/faultlab/faultlab/netem/netns"
)

// With netem or without.
func TestProbeSaysWhatMendsALackAndLeavesNothing(t *testing.T) {
	before, _ := os.ReadDir(netns.Dir)
	err := Probe()
	t.Log(err)
	var lack *LackError
	switch {
	case err == nil:
	case !errors.Is(err, ErrUnsupported):
		t.Errorf("Probe = %v, which is no lack of this machine", err)
	case errors.Is(err, os.ErrPermission):
		t.Skip(err)
	case !errors.As(err, &lack) || lack.Mend == "" || lack.Config == "" || lack.Cause == nil:
		t.Errorf("Probe = %#v, want what is missing and what mends it", err)
	}
	if after, _ := os.ReadDir(netns.Dir); len(after) > len(before) {
		t.Errorf("there are %d named namespaces after it, %d before", len(after), len(before))
	}
}
