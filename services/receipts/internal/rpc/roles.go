package rpc

import (
	"github.com/tollgate-platform/tollgate/libs/chassis/identity"
	"github.com/tollgate-platform/tollgate/proto/gen/tollgate/receipts/v1/receiptsv1connect"
)

// Roles says who may call each procedure: instances write, both read.
func Roles() identity.Table {
	both := identity.Of(identity.Instance, identity.Operator)
	return identity.Table{
		receiptsv1connect.ReceiptsServiceAppendProcedure:     identity.Of(identity.Instance),
		receiptsv1connect.ReceiptsServiceGetLogProcedure:     both,
		receiptsv1connect.ReceiptsServiceGetAnchorProcedure:  both,
		receiptsv1connect.ReceiptsServiceGetKeyProcedure:     both,
		receiptsv1connect.ReceiptsServiceListChainsProcedure: both,
	}
}
