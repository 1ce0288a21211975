//go:build integration && kernel

package qdisc_test

import (
	"testing"

	"github.com/faultlab/faultlab/netem"
	"github.com/faultlab/faultlab/netem/netemtest"
	"github.com/faultlab/faultlab/netem/qdisc"
)

func TestContract(t *testing.T) {
	netemtest.Backend(t, func(t *testing.T) netem.Backend { return qdisc.Open() })
}
