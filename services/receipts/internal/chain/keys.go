package chain

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/tollgate-platform/tollgate/libs/receipt"
	"github.com/tollgate-platform/tollgate/libs/receipt/verify"
	"github.com/tollgate-platform/tollgate/services/receipts/internal/disk"
)

const privateFile = "signing.priv"

// loadKeys reads a chain's keys, or makes them for a chain that has no entry
// yet. It gives the signer and the public key file's text. A private key that
// others can read, or that the public file doesn't list, is refused.
func loadKeys(d disk.Disk, dir string, empty bool) (*receipt.Signer, []byte, error) {
	private, public := filepath.Join(dir, privateFile), filepath.Join(dir, verify.KeyFile)
	signer, err := readSigner(d, private)
	if errors.Is(err, fs.ErrNotExist) {
		signer, err = makeSigner(d, private, public, empty)
	}
	if err != nil {
		return nil, nil, err
	}
	text, err := disk.ReadFile(d, public, receipt.MaxKeyFile)
	if errors.Is(err, fs.ErrNotExist) { // a crash came between the two files
		text = signer.Public().File()
		err = disk.WriteFile(d, public, text)
	}
	if err != nil {
		return nil, nil, err
	}
	keys, err := receipt.ParseTrustedKeys(text)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %s: %w", ErrRefused, verify.KeyFile, err)
	}
	if !slices.Contains(keys, receipt.TrustedKey{Key: signer.Public()}) {
		return nil, nil, fmt.Errorf("%w: %s does not list the key of %s without a cut-off", ErrRefused, verify.KeyFile, privateFile)
	}
	return signer, text, nil
}

func readSigner(d disk.Disk, name string) (*receipt.Signer, error) {
	info, err := d.Stat(name)
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%w: %s must have mode 0600: others can read it", ErrRefused, privateFile)
	}
	text, err := disk.ReadFile(d, name, receipt.MaxKeyFile)
	if err != nil {
		return nil, err
	}
	signer, err := receipt.ParseSigner(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrRefused, privateFile, err)
	}
	return signer, nil
}

func makeSigner(d disk.Disk, private, public string, empty bool) (*receipt.Signer, error) {
	if !empty {
		return nil, fmt.Errorf("%w: %s is missing and there are entries", ErrRefused, privateFile)
	}
	switch there, err := disk.Exists(d, public); {
	case err != nil:
		return nil, err
	case there:
		return nil, fmt.Errorf("%w: %s is missing and %s is there", ErrRefused, privateFile, verify.KeyFile)
	}
	signer := receipt.GenerateSigner()
	return signer, disk.WriteFile(d, private, signer.PrivateFile())
}
