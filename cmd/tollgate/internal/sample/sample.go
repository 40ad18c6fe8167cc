// Package sample holds the configuration that a process without one starts
// from: copies of the repository's config folder, kept current by `make gen`.
package sample

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

//go:embed default.toml models.yaml tenants.yaml
var files embed.FS

// Materialize writes the sample into dir, keeping every file that is there, and
// gives the path of its default.toml.
func Materialize(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("write the sample configuration: %w", err)
	}
	for _, name := range []string{"default.toml", "models.yaml", "tenants.yaml"} {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return "", fmt.Errorf("read the sample configuration: %w", err)
		}
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("write the sample configuration: %w", err)
		}
		_, err = f.Write(text)
		if err := errors.Join(err, f.Close()); err != nil {
			return "", fmt.Errorf("write the sample configuration: %w", err)
		}
	}
	return filepath.Join(dir, "default.toml"), nil
}
