// Command protovalidate-export writes buf/validate/validate.proto below the
// folder it is given, printed from the descriptor that is compiled into the
// protovalidate Go module. So the .proto the contracts import and the Go package
// their stubs import are one version, and no schema registry is needed.
//
// It is a module of its own, outside the workspace: the printer is needed once
// per version of protovalidate, by `make protovalidate`.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	validatepb "buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"github.com/jhump/protoreflect/v2/protoprint"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: protovalidate-export FOLDER")
		os.Exit(2)
	}
	if err := export(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "protovalidate-export:", err)
		os.Exit(1)
	}
}

func export(folder string) (err error) {
	path := filepath.Join(folder, "buf", "validate", "validate.proto")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	printer := &protoprint.Printer{Compact: true}
	return printer.PrintProtoFile(validatepb.File_buf_validate_validate_proto, f)
}
