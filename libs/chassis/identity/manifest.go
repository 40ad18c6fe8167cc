package identity

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"go.yaml.in/yaml/v3"
)

// maxManifestBytes bounds a manifest.
const maxManifestBytes = 1 << 20

// manifest is the file: token files are relative to its folder.
//
//	schema_version: 1
//	bearers:
//	  - {identity: gateway-1, role: instance, token_file: gateway-1.token}
type manifest struct {
	SchemaVersion int `yaml:"schema_version"`
	Bearers       []struct {
		Identity  string `yaml:"identity"`
		Role      string `yaml:"role"`
		TokenFile string `yaml:"token_file"`
	} `yaml:"bearers"`
}

// ReadManifest reads a file of identities. An unknown field is an error.
func ReadManifest(path string) ([]Bearer, error) {
	f, err := os.Open(filepath.Clean(path))
	if err != nil {
		return nil, invalid(fmt.Errorf("the manifest cannot be read: %w", err))
	}
	text, err := io.ReadAll(io.LimitReader(f, maxManifestBytes+1))
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, invalid(fmt.Errorf("the manifest cannot be read: %w", err))
	}
	if len(text) > maxManifestBytes {
		return nil, invalid(fmt.Errorf("%s: must be at most 1 MiB", path))
	}
	bearers, err := parseManifest(text)
	if err != nil {
		return nil, invalid(fmt.Errorf("%s: %w", path, err))
	}
	for i, b := range bearers {
		if !filepath.IsAbs(b.TokenFile) {
			bearers[i].TokenFile = filepath.Join(filepath.Dir(path), b.TokenFile)
		}
	}
	return bearers, nil
}

func parseManifest(text []byte) ([]Bearer, error) {
	var doc manifest
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&doc); err != nil {
		return nil, fmt.Errorf("must be a YAML document of identities: %w", err)
	}
	if err := d.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, errors.New("must be one YAML document")
	}
	if doc.SchemaVersion != 1 {
		return nil, fmt.Errorf("schema_version: must be 1, not %d", doc.SchemaVersion)
	}
	out := make([]Bearer, 0, len(doc.Bearers))
	var faults []error
	for i, b := range doc.Bearers {
		role, err := ParseRole(b.Role)
		if err != nil {
			faults = append(faults, fmt.Errorf("bearers[%d]: role: %w", i, err))
		}
		if b.TokenFile == "" {
			faults = append(faults, fmt.Errorf("bearers[%d]: token_file: must name a file", i))
		}
		out = append(out, Bearer{Identity: b.Identity, Role: role, TokenFile: b.TokenFile})
	}
	return out, errors.Join(faults...)
}
