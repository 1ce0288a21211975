// Package cli owns the command line: flags, wiring, what is printed, and exit
// codes. It is the one place where everything concrete meets.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/lab/process"
	"github.com/faultlab/faultlab/netem/netns"
	"github.com/faultlab/faultlab/netem/wire"
	"github.com/faultlab/faultlab/scenarios"
)

// Exit codes. They are a promise to scripts.
const (
	exitOK          = 0
	exitFailed      = 1   // the command failed
	exitUsage       = 2   // wrong usage or an invalid file
	exitVerdict     = 3   // ran, but an expectation failed
	exitInvalid     = 4   // ran, but a row is INVALID
	exitInterrupted = 130 // interrupted, and cleaned up
)

// exit is an error with an exit code. A nil err prints nothing.
type exit struct {
	code int
	err  error
}

func (e *exit) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.code)
	}
	return e.err.Error()
}
func (e *exit) Unwrap() error { return e.err }

func usage(format string, args ...any) error {
	return &exit{exitUsage, fmt.Errorf(format, args...)}
}

// Main runs the command line and returns its exit code. args[0] is the
// program.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	// The same binary is a node in the making and the emulator's helper.
	if len(args) > 1 {
		switch args[1] {
		case process.NodeArg:
			process.NodeMain()
		case wire.Arg:
			if err := wire.Main(stdin, stdout); err != nil {
				fmt.Fprintf(stderr, "faultlab: delay helper: %s\n", err)
				return exitFailed
			}
			return exitOK
		}
	}
	// A pipe that its reader has closed must not end the program before it has
	// taken its labs down. It is not ignored, which programs started from here
	// would inherit.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	// A second Ctrl-C ends the program at once; `faultlab clean` does the rest.
	context.AfterFunc(ctx, stop)

	app := newApp(stdin, stdout, stderr)
	err := app.RunContext(ctx, permute(app, args))
	return explain(ctx, stderr, err)
}

func newApp(stdin io.Reader, stdout, stderr io.Writer) *cli.App {
	c := &command{stdin: stdin, stdout: stdout, stderr: stderr}
	app := &cli.App{
		Name:                 "faultlab",
		Usage:                "what network faults cost a MySQL cluster, measured and proved",
		UsageText:            "faultlab COMMAND [ARGUMENTS] [OPTIONS]\n\nfaultlab run latency-0.6ms --profile quick",
		Version:              version(),
		HideHelpCommand:      true,
		Reader:               stdin,
		Writer:               stdout,
		ErrWriter:            stderr,
		EnableBashCompletion: true,
		Flags:                []cli.Flag{cli.HelpFlag}, // which the library leaves out beside our own command
		ExitErrHandler:       func(*cli.Context, error) {},
		OnUsageError:         usageError,
		Commands: []*cli.Command{
			c.run(), c.list(), c.show(), c.check(),
			c.up(), c.status(), c.sql(), c.link(), c.down(),
			c.shape(),
			c.load(), c.report(), c.compare(),
			c.servers(), c.doctor(), c.clean(), help(),
		},
		Action: func(ctx *cli.Context) error {
			if ctx.Args().Present() {
				return unknownCommand("faultlab", ctx.Args().First(), ctx.App.Commands)
			}
			return cli.ShowAppHelp(ctx)
		},
	}
	var prepare func([]*cli.Command)
	prepare = func(cmds []*cli.Command) {
		for _, cmd := range cmds {
			cmd.OnUsageError = usageError
			cmd.HideHelpCommand = true
			prepare(cmd.Subcommands)
		}
	}
	prepare(app.Commands)
	return app
}

// help is for people who type it in front of a command instead of --help
// behind it.
func help() *cli.Command {
	return &cli.Command{
		Name: "help", Usage: "what a command does, and its options", ArgsUsage: "[COMMAND [SUBCOMMAND]]",
		Action: func(ctx *cli.Context) error {
			words := ctx.Args().Slice()
			path, commands := []string{ctx.App.Name}, ctx.App.Commands
			for _, w := range words {
				i := slices.IndexFunc(commands, func(k *cli.Command) bool { return k.Name == w })
				if i < 0 {
					return unknownCommand(strings.Join(path, " "), w, commands)
				}
				path, commands = append(path, w), commands[i].Subcommands
			}
			return ctx.App.RunContext(ctx.Context, append(path, "--help"))
		},
	}
}

// unknownCommand is the error for a name that none of the commands has; parent
// is "faultlab" or a command that has commands of its own.
func unknownCommand(parent, name string, commands []*cli.Command) error {
	var names []string
	for _, c := range commands {
		names = append(names, c.Name)
	}
	return lab.Hint(usage("%s has no command %q", parent, name), scenarios.Suggest(name, names))
}

// command holds what every command talks to.
type command struct {
	stdin          io.Reader
	stdout, stderr io.Writer
}

// usageError puts the library's errors into our words.
func usageError(ctx *cli.Context, err error, _ bool) error {
	command, flags := "faultlab", ctx.App.Flags
	if c := ctx.Command; c != nil && c.Name != "" && c.Name != command {
		command, flags = c.HelpName, c.Flags
	}
	help := command + " --help lists the options"
	if name, ok := strings.CutPrefix(err.Error(), "flag provided but not defined: -"); ok {
		var known []string
		for _, f := range flags {
			known = append(known, "--"+f.Names()[0])
		}
		name = "--" + strings.TrimLeft(name, "-")
		err := usage("%s has no option %s", command, name)
		if near := scenarios.Suggest(name, known); strings.HasPrefix(near, "did you mean") {
			return lab.Hint(err, near, help)
		}
		return lab.Hint(err, help)
	}
	return lab.Hint(usage("%s", strings.Replace(err.Error(), " for flag -", " for --", 1)), help)
}

// explain prints an error as people read it and returns the exit code.
func explain(ctx context.Context, stderr io.Writer, err error) int {
	code := exitOK
	var e *exit
	switch {
	case err == nil:
	case errors.As(err, &e):
		code = e.code
		if e.err == nil {
			return code
		}
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		fmt.Fprintln(stderr, "faultlab: interrupted")
		return exitInterrupted
	default:
		code = exitFailed
	}
	var problems scenarios.Problems
	if errors.As(err, &problems) {
		for _, p := range problems {
			if p.File == "" {
				explain(ctx, stderr, &exit{exitUsage, p})
				continue
			}
			// It has a place, as editors understand it.
			fmt.Fprintln(stderr, scenarios.Problems{p})
		}
		return exitUsage
	}
	if err != nil {
		fmt.Fprintf(stderr, "faultlab: error: %s\n", err)
		for _, h := range hints(err) {
			fmt.Fprintf(stderr, "hint: %s\n", h)
		}
	}
	return code
}

// hints collects those of the whole chain, and what to say of errors of
// packages that know no hints.
func hints(err error) []string {
	var out []string
	var h *lab.HintError
	for e := err; errors.As(e, &h); e = h.Err {
		out = append(out, h.Hints...)
	}
	var p *scenarios.Problem
	if errors.As(err, &p) {
		out = append(out, p.Hints()...)
	}
	if errors.Is(err, netns.ErrUnsupported) && len(out) == 0 {
		out = append(out, "faultlab makes network namespaces: run it as root (sudo)")
	}
	return out
}

// permute puts a command's options before its arguments, so that both
// `run latency-0.6ms --json` and `run --json latency-0.6ms` are understood:
// the library stops at the first argument.
func permute(app *cli.App, args []string) []string {
	out := []string{args[0]}
	rest := args[1:]
	commands, flags := app.Commands, app.Flags
	for len(rest) > 0 && len(commands) > 0 {
		i := 0
		for i < len(rest) && strings.HasPrefix(rest[i], "-") {
			i++
		}
		if i == len(rest) {
			break
		}
		var next *cli.Command
		for _, c := range commands {
			if c.HasName(rest[i]) {
				next = c
			}
		}
		if next == nil {
			// What is no command has no options: the error is about its name.
			return append(out, rest...)
		}
		out = append(out, rest[:i+1]...)
		rest = rest[i+1:]
		commands, flags = next.Subcommands, next.Flags
	}
	takesValue := func(arg string) bool {
		name := strings.TrimLeft(arg, "-")
		if strings.Contains(name, "=") {
			return false
		}
		for _, f := range flags {
			for _, n := range f.Names() {
				if n == name {
					d, ok := f.(cli.DocGenerationFlag)
					return ok && d.TakesValue()
				}
			}
		}
		return false
	}
	var options, arguments []string
	for i := 0; i < len(rest); i++ {
		switch a := rest[i]; {
		case a == "--":
			arguments = append(arguments, rest[i+1:]...)
			i = len(rest)
		case strings.HasPrefix(a, "-") && a != "-":
			options = append(options, a)
			if takesValue(a) && i+1 < len(rest) {
				i++
				options = append(options, rest[i])
			}
		default:
			arguments = append(arguments, a)
		}
	}
	out = append(out, options...)
	// To the library, help with an argument is about a command of that name.
	help := slices.Contains(options, "--help") || slices.Contains(options, "-h")
	if len(arguments) > 0 && !help {
		out = append(append(out, "--"), arguments...)
	}
	return out
}

// exactly checks the number of arguments, of which those in brackets may be
// left out, and names them in the error.
func exactly(ctx *cli.Context, names ...string) error {
	least := 0
	for _, n := range names {
		if !strings.HasPrefix(n, "[") {
			least++
		}
	}
	var err error
	name := strings.TrimPrefix(ctx.Command.HelpName, "faultlab ")
	switch n := ctx.NArg(); {
	case n < least:
		err = usage("%s needs %s", name, strings.Join(names[n:], " "))
	case n > len(names):
		err = usage("%s does not know what to do with %q", name, ctx.Args().Get(len(names)))
	default:
		return nil
	}
	return lab.Hint(err, ctx.Command.HelpName+" --help shows how it is used")
}
