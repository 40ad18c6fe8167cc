package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tollgate-platform/tollgate/libs/receipt/verify"
)

type receiptsCommands struct {
	Verify receiptsVerifyCommand `cmd:"" help:"Verify one chain's folder, or every chain below a folder."`
}

type receiptsVerifyCommand struct {
	Dir               string `arg:"" help:"A folder with receipts.jsonl, or one that holds such folders (<data>/receipts)."`
	Anchor            string `help:"An anchor.jsonl kept elsewhere (one chain only)." placeholder:"FILE"`
	TrustedKeys       string `help:"A file of trusted public keys kept elsewhere." placeholder:"FILE"`
	RequireSignatures bool   `help:"Refuse unsigned entries and anchors."`
	JSON              bool   `help:"Print the report as JSON."`
}

// maxChains bounds how many chains one command verifies.
const maxChains = 100_000

// Help adds the exit codes.
func (receiptsVerifyCommand) Help() string {
	return "Exit code 0: verified. 1: not verified. 2: the input could not be read."
}

// Run verifies and reports. A folder with several chains is verified when all are.
func (c receiptsVerifyCommand) Run(p *process) error {
	if strings.Contains(c.Dir, "://") {
		return &exitError{verify.ExitUnreadable, errors.New("DIR: this build verifies folders only: download the chain's files and name their folder")}
	}
	dirs, err := chains(c.Dir)
	if err != nil {
		return &exitError{verify.ExitUnreadable, err}
	}
	if len(dirs) > 1 && c.Anchor != "" {
		return &exitError{verify.ExitUnreadable, fmt.Errorf("--anchor: is for one chain, and %s holds %d", c.Dir, len(dirs))}
	}
	failed := 0
	for _, dir := range dirs {
		report, err := verify.Dir(dir, verify.Options{AnchorFile: c.Anchor, KeysFile: c.TrustedKeys, RequireSignatures: c.RequireSignatures})
		if err != nil {
			return &exitError{verify.ExitCode(report, err), fmt.Errorf("%s: %w", dir, err)}
		}
		if !report.OK {
			failed++
		}
		if c.JSON {
			b, err := report.JSON()
			if err != nil {
				return fmt.Errorf("report on %s: %w", dir, err)
			}
			fmt.Fprintf(p.stdout, "%s\n", b)
			continue
		}
		if len(dirs) > 1 {
			fmt.Fprintf(p.stdout, "%s\n", dir)
		}
		fmt.Fprint(p.stdout, report.Text())
	}
	if failed > 0 {
		return &exitError{verify.ExitNotVerified, fmt.Errorf("%d of %d chains not verified", failed, len(dirs))}
	}
	return nil
}

// chains gives dir itself when it holds a chain, else the folders below it
// that do, in order.
func chains(dir string) ([]string, error) {
	if _, err := os.Stat(filepath.Join(dir, verify.LogFile)); err == nil {
		return []string{dir}, nil
	}
	var found []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !e.IsDir() && e.Name() == verify.LogFile {
			if found = append(found, filepath.Dir(path)); len(found) > maxChains {
				return fmt.Errorf("more than %d chains", maxChains)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("cannot check: %w", err)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("cannot check: no %s in %s or below it", verify.LogFile, dir)
	}
	return found, nil
}
