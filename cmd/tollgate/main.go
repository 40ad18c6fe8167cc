// Command tollgate is the platform in one binary: all services in one process,
// the tools around them, and a demonstration that checks itself.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

// commands is the command line; a field is a command, its tags the help.
type commands struct {
	Serve        serveCommand        `cmd:"" help:"Run every service in this process until SIGTERM or SIGINT."`
	Migrate      migrateCommand      `cmd:"" help:"Create or upgrade the ledger's and the jobs' tables, then exit."`
	Demo         demoCommand         `cmd:"" help:"Walk through what Tollgate claims against a mock provider, checking each claim."`
	Check        checkCommand        `cmd:"" help:"Do the demo's checks against a platform that runs elsewhere."`
	Secrets      secretsCommand      `cmd:"" help:"Make the issuer secret and bearer tokens of a platform of several processes."`
	Probe        probeCommand        `cmd:"" help:"Ask a health endpoint once."`
	Bench        benchCommand        `cmd:"" help:"Measure what the gateway adds to a paced provider, and reconcile every account to the unit."`
	MockProvider mockProviderCommand `cmd:"" name:"mock-provider" help:"Serve an OpenAI-compatible provider that needs no account."`
	Usage        usageCommand        `cmd:"" help:"Add up, or list, what was used."`
	Reconcile    reconcileCommand    `cmd:"" help:"Recompute every account's books and compare them."`
	Receipts     receiptsCommands    `cmd:"" help:"Work with receipt chains."`
	Version      versionCommand      `cmd:"" help:"Print the version."`
}

// process is what every command is given of the outside.
type process struct {
	ctx            context.Context //nolint:containedctx // the process's own: it ends with SIGTERM
	stdout, stderr io.Writer
	environ        []string
}

// exitError carries an exit code other than 1.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	code := execute(&process{ctx: ctx, stdout: os.Stdout, stderr: os.Stderr, environ: os.Environ()}, os.Args[1:])
	stop()
	os.Exit(code)
}

// execute parses and runs one command line. The code is 0, 1 for a failure, 2
// for a command line or an input that could not be read.
func execute(p *process, args []string) (code int) {
	exited := false
	var cli commands
	parser, err := kong.New(
		&cli,
		kong.Name("tollgate"),
		kong.Description("Decides, meters, bills and proves every request to a paid API or an LLM."),
		kong.UsageOnError(),
		kong.Writers(p.stdout, p.stderr),
		kong.Exit(func(c int) { exited, code = true, c; panic(exitPanic{}) }),
	)
	if err != nil {
		fmt.Fprintln(p.stderr, "tollgate:", err)
		return 2
	}
	defer func() {
		if r := recover(); r != nil {
			if _, ours := r.(exitPanic); !ours || !exited {
				panic(r)
			}
		}
	}()
	if len(args) == 0 {
		args = []string{"--help"}
	}
	kctx, err := parser.Parse(args)
	if err != nil {
		fmt.Fprintln(p.stderr, "tollgate:", err)
		fmt.Fprintln(p.stderr, "Run tollgate --help for the commands.")
		return 2
	}
	if err := kctx.Run(p); err != nil {
		fmt.Fprintln(p.stderr, "tollgate:", err)
		if exit, ok := errors.AsType[*exitError](err); ok {
			return exit.code
		}
		return 1
	}
	return 0
}

// exitPanic unwinds out of kong after --help, which would exit the process.
type exitPanic struct{}
