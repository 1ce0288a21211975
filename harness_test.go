//go:build integration || bench || kernellab

package main

import (
	"os"
	"testing"

	"github.com/faultlab/faultlab/internal/cli"
	"github.com/faultlab/faultlab/lab/process"
	"github.com/faultlab/faultlab/netem/wire"
)

// The program under test is this binary itself, started with asProgram set.
const asProgram = "FAULTLAB_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" || len(os.Args) > 1 && (os.Args[1] == process.NodeArg || os.Args[1] == wire.Arg) {
		os.Exit(cli.Main(os.Args, os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}
