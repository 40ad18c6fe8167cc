package remote

import (
	"context"
	"errors"

	"github.com/tollgate-platform/tollgate/libs/chassis/wire"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/receipt"
	receiptsv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/receipts/v1"
)

// Append implements receipt.Appender. An outcome names the writer that keeps
// it, so it is repeated while nobody answers; a decision isn't, for another
// replica would keep it a second time.
func (c *Client) Append(ctx context.Context, e receipt.Entry) (receipt.Receipt, error) {
	if err := e.Validate(); err != nil {
		return receipt.Receipt{}, err
	}
	if c.receipts == nil {
		return receipt.Receipt{}, absent("receipts")
	}
	send := once[receiptsv1.AppendRequest, receiptsv1.AppendResponse]
	if e.Kind == receipt.Outcome {
		send = repeat[receiptsv1.AppendRequest, receiptsv1.AppendResponse]
	}
	res, err := send(ctx, c, c.receipts.Append, &receiptsv1.AppendRequest{Entries: []*receiptsv1.Entry{toWireEntry(e)}})
	switch {
	case fault.KindOf(err) == fault.Unavailable:
		return receipt.Receipt{}, receipt.Unavailable(err)
	case err != nil:
		return receipt.Receipt{}, err
	case len(res.GetResults()) != 1:
		return receipt.Receipt{}, receipt.Unavailable(unreadable(errors.New("another number of results than entries")))
	}
	result := res.GetResults()[0]
	if p := result.GetProblem(); p != nil {
		return receipt.Receipt{}, wire.FromProblem(p)
	}
	return receipt.Receipt{ID: result.GetReceipt().GetReceiptId(), Writer: result.GetReceipt().GetWriterId()}, nil
}
