package tenantfile

import (
	"time"

	"github.com/tollgate-platform/tollgate/libs/auth"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/policy"
)

// MaxFileBytes bounds tenants.yaml.
const MaxFileBytes = 4 << 20

// Defaults are what a tenant inherits for every limit that its entry leaves
// out or sets to 0. A default of 0 means no ceiling.
type Defaults struct {
	RequestsPerMinute     int64
	TokensPerMinute       int64
	MaxConcurrentStreams  int64
	MaxOutputTokens       int64
	DailyBudgetNanoUSD    int64
	MaxMessages           int64
	MaxPromptChars        int64
	RequireModelAllowlist bool
	OnMaxTokensExceeded   policy.OnExceeded
}

// ContractDefaults are the defaults of the gateway's contract.
func ContractDefaults() Defaults {
	return Defaults{
		RequestsPerMinute:     120,
		TokensPerMinute:       200_000,
		MaxConcurrentStreams:  16,
		MaxOutputTokens:       8192,
		DailyBudgetNanoUSD:    5_000_000_000,
		MaxMessages:           512,
		MaxPromptChars:        200_000,
		RequireModelAllowlist: true,
		OnMaxTokensExceeded:   policy.Clamp,
	}
}

// Options are what a file is compiled against. Issuer is required.
type Options struct {
	Defaults Defaults
	Issuer   *auth.Issuer
	// LookupEnv reads the environment for key_env (os.LookupEnv in a main). Nil:
	// key_env is refused.
	LookupEnv func(name string) (string, bool)
	// Dir is where a relative key_file starts: the config directory.
	Dir string
	// Models are the registry's model ids and aliases, disabled ones too; an
	// exact name in a tenant that is not among them is refused. Nil: not checked.
	Models []string
	// TokenIssuer is auth.jwt.issuer where tokens are taken: every tenant then gets
	// the one principal that its tokens act as. Empty: no tenant takes tokens.
	TokenIssuer string
	// ExpectedInstances is how many gateways share a tenant's limits where each
	// decides by itself, with leased funding; 0 is 1.
	ExpectedInstances int64
	// ReceiptsEnabled says that receipts can be written; without it a tenant
	// with receipts: true is refused.
	ReceiptsEnabled bool
	// Split gives the account this replica's share of the budget and of the limits
	// that are counted; a share of 0 is refused, since 0 means no ceiling.
	Split ledger.QuotaSplit
}

// Compiled is a valid file. It holds digests, never secrets.
type Compiled struct {
	Name    string
	Tenants []Tenant // by slug
	// KeyFiles are the key files that were read: a watcher watches them, too.
	KeyFiles []string
}

// Tenant is one declared tenant with every inheritance resolved.
type Tenant struct {
	Slug        string
	DisplayName string
	Enabled     bool
	Limits      ledger.Limits
	// Instance is each gateway's share of the limits; only with leased funding.
	Instance       ledger.SnapshotLimits
	Budget         *ledger.BudgetSetting // nil: no budget ceiling
	Policy         policy.Document
	PolicyBody     []byte
	PolicyRevision [32]byte
	// Keys are by name; disabled credentials are absent. With Options.TokenIssuer
	// one of them, auth.TokenKeyName, is the principal of the tenant's tokens.
	Keys []Key
}

// Key is one declared credential.
type Key struct {
	ID          ident.ID
	Name        string
	Digest      auth.Digest
	Permissions uint64
	NotAfter    time.Time // zero: no end
}
