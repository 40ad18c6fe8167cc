package rpc

import (
	"github.com/tollgate-platform/tollgate/libs/chassis/identity"
	"github.com/tollgate-platform/tollgate/proto/gen/tollgate/lease/v1/leasev1connect"
)

// Roles says who may call each procedure: whoever admits work, and nobody else.
func Roles() identity.Table {
	instance := identity.Of(identity.Instance)
	return identity.Table{
		leasev1connect.LeaseServiceAcquireProcedure:     instance,
		leasev1connect.LeaseServiceReleaseProcedure:     instance,
		leasev1connect.LeaseServiceConsolidateProcedure: instance,
		leasev1connect.LeaseServiceExtendProcedure:      instance,
		leasev1connect.LeaseServiceReserveProcedure:     instance,
		leasev1connect.LeaseServiceRenewProcedure:       instance,
		leasev1connect.LeaseServiceCloseBatchProcedure:  instance,
		leasev1connect.LeaseServiceCreateHoldProcedure:  instance,
		leasev1connect.LeaseServiceGetHoldProcedure:     instance,
		leasev1connect.LeaseServiceGetLedgerProcedure:   instance,
	}
}
