package receipts

import (
	"errors"
	"fmt"
)

// How much a start verifies.
const (
	VerifyFull        = "full"         // every entry and anchor
	VerifySinceAnchor = "since_anchor" // hashes and signatures behind the newest anchor
)

// Config is the [receipts] section.
type Config struct {
	Enabled            bool   `config:"enabled"`
	Directory          string `config:"directory"`            // the root of all chains; relative to the data folder
	AnchorEvery        int    `config:"anchor_every"`         // entries
	AnchorIntervalSecs int    `config:"anchor_interval_secs"` // seconds between anchors while entries come
	StartupVerify      string `config:"startup_verify"`       // full | since_anchor
}

// Defaults are the contract's. Receipts are off until a folder is chosen.
func Defaults() Config {
	return Config{AnchorEvery: 1000, AnchorIntervalSecs: 60, StartupVerify: VerifyFull}
}

// Validate gives every fault. What is off isn't checked for a folder.
func (c Config) Validate() error {
	var faults []error
	if c.Enabled && c.Directory == "" {
		faults = append(faults, errors.New("receipts.directory: must name a folder when receipts are enabled"))
	}
	if c.AnchorEvery < 1 || c.AnchorEvery > 1_000_000 {
		faults = append(faults, fmt.Errorf("receipts.anchor_every: must be 1 to 1000000 entries, not %d", c.AnchorEvery))
	}
	if c.AnchorIntervalSecs < 1 || c.AnchorIntervalSecs > 86_400 {
		faults = append(faults, fmt.Errorf("receipts.anchor_interval_secs: must be 1 to 86400 seconds, not %d", c.AnchorIntervalSecs))
	}
	if c.StartupVerify != VerifyFull && c.StartupVerify != VerifySinceAnchor {
		faults = append(faults, fmt.Errorf("receipts.startup_verify: must be %s or %s, not %q", VerifyFull, VerifySinceAnchor, c.StartupVerify))
	}
	return errors.Join(faults...)
}
