package demo

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	"github.com/tollgate-platform/tollgate/libs/chassis/control"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/receipt/verify"
	adminv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/admin/v1"
	"github.com/tollgate-platform/tollgate/proto/gen/tollgate/admin/v1/adminv1connect"
	commonv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/common/v1"
	receiptsv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/receipts/v1"
	"github.com/tollgate-platform/tollgate/proto/gen/tollgate/receipts/v1/receiptsv1connect"
)

// operator is what the walk does that no tenant may: budgets, books, evidence.
type operator struct {
	admin    adminv1connect.AdminServiceClient
	evidence receiptsv1connect.ReceiptsServiceClient
	close    func()
}

func newOperator(t Target) (operator, error) {
	admin, err := control.NewClient(control.ClientOptions{URL: t.Admin, TokenFile: t.TokenFile})
	if err != nil {
		return operator{close: func() {}}, fmt.Errorf("the admin service's %w", err)
	}
	evidence, err := control.NewClient(control.ClientOptions{URL: t.Receipts, TokenFile: t.TokenFile})
	if err != nil {
		return operator{close: func() {}}, fmt.Errorf("the receipts service's %w", err)
	}
	return operator{
		admin:    adminv1connect.NewAdminServiceClient(admin, t.Admin),
		evidence: receiptsv1connect.NewReceiptsServiceClient(evidence, t.Receipts),
		close: func() {
			for _, c := range []*http.Client{admin, evidence} {
				c.CloseIdleConnections()
			}
		},
	}, nil
}

// allow lets a tenant spend that much more today, and nothing beyond.
func (w *walk) allow(ctx context.Context, c client, slug string, nanoUSD int64) error {
	u, err := w.settled(ctx, c)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err = w.admin.SetBudget(ctx, &adminv1.SetBudgetRequest{
		AccountId: ident.Account(slug).String(),
		Setting: &adminv1.SetBudgetRequest_Budget{Budget: &commonv1.Budget{
			Period: commonv1.Period_PERIOD_DAY, AllowanceUnits: u.SpentNanoUSD + nanoUSD,
		}},
	})
	if err != nil {
		return fmt.Errorf("set %s's budget: %w", slug, err)
	}
	if u, err = w.settled(ctx, c); err == nil && u.RemainingNanoUSD != nanoUSD {
		err = fmt.Errorf("%s may spend %d, not %d", slug, u.RemainingNanoUSD, nanoUSD)
	}
	return err
}

// conserved says whether a tenant's books balance.
func (o operator) conserved(ctx context.Context, slug string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	res, err := o.admin.GetConservation(ctx, &adminv1.GetConservationRequest{AccountId: ident.Account(slug).String()})
	if err != nil {
		return fmt.Errorf("%s's books: %w", slug, err)
	}
	if !res.GetConservation().GetHolds() {
		return fmt.Errorf("%s's books: %v", slug, res.GetConservation())
	}
	return nil
}

// download writes a tenant's chain into a new folder, as the verifier reads it.
func (o operator) download(ctx context.Context, slug, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("make a folder for the chain: %w", err)
	}
	account := ident.Account(slug).String()
	key, err := o.evidence.GetKey(ctx, &receiptsv1.GetKeyRequest{AccountId: account})
	if err != nil {
		return fmt.Errorf("read the chain's key: %w", err)
	}
	log, err := o.evidence.GetLog(ctx, &receiptsv1.GetLogRequest{AccountId: account})
	if err != nil {
		return fmt.Errorf("read the chain: %w", err)
	}
	logText, err := gather(log, (*receiptsv1.GetLogResponse).GetChunk)
	if err != nil {
		return fmt.Errorf("read the chain: %w", err)
	}
	anchor, err := o.evidence.GetAnchor(ctx, &receiptsv1.GetAnchorRequest{AccountId: account})
	if err != nil {
		return fmt.Errorf("read the anchors: %w", err)
	}
	anchorText, err := gather(anchor, (*receiptsv1.GetAnchorResponse).GetChunk)
	if err != nil {
		return fmt.Errorf("read the anchors: %w", err)
	}
	for name, text := range map[string][]byte{verify.KeyFile: key.GetSigningPub(), verify.LogFile: logText, verify.AnchorFile: anchorText} {
		if len(text) == 0 { // no anchor yet
			continue
		}
		if err := write(filepath.Join(dir, name), string(text)); err != nil {
			return err
		}
	}
	return nil
}

// maxChain bounds what the walk reads of a chain.
const maxChain = 64 << 20

// gather reads a stream of pieces whole.
func gather[T any](s interface {
	Receive() bool
	Msg() *T
	Err() error
	Close() error
}, piece func(*T) []byte,
) ([]byte, error) {
	defer func() { _ = s.Close() }()
	var all []byte
	for s.Receive() {
		if all = append(all, piece(s.Msg())...); len(all) > maxChain {
			return nil, fmt.Errorf("more than %d bytes", maxChain)
		}
	}
	return all, s.Err()
}
