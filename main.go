// Faultlab builds MySQL high-availability clusters, injects network faults into
// their links, and measures what the faults cost.
package main

import (
	"os"

	"github.com/faultlab/faultlab/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args, os.Stdin, os.Stdout, os.Stderr)) }
