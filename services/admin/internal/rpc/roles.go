package rpc

import (
	"github.com/tollgate-platform/tollgate/libs/chassis/identity"
	"github.com/tollgate-platform/tollgate/proto/gen/tollgate/admin/v1/adminv1connect"
)

// Roles says who may call each procedure. Instances may ask for the file that
// this service has itself to be applied, and decide holds for an approver they
// have verified; all else is an operator's.
func Roles() identity.Table {
	operator := identity.Of(identity.Operator)
	both := identity.Of(identity.Instance, identity.Operator)
	return identity.Table{
		adminv1connect.AdminServiceCreateAccountProcedure:    operator,
		adminv1connect.AdminServiceGetAccountProcedure:       operator,
		adminv1connect.AdminServiceListAccountsProcedure:     operator,
		adminv1connect.AdminServiceDepositProcedure:          operator,
		adminv1connect.AdminServiceWithdrawProcedure:         operator,
		adminv1connect.AdminServiceSetBudgetProcedure:        operator,
		adminv1connect.AdminServiceSetLimitsProcedure:        operator,
		adminv1connect.AdminServiceSetStatusProcedure:        operator,
		adminv1connect.AdminServiceSetCapacityClassProcedure: operator,
		adminv1connect.AdminServiceIssueKeyProcedure:         operator,
		adminv1connect.AdminServiceListKeysProcedure:         operator,
		adminv1connect.AdminServiceRevokeKeyProcedure:        operator,
		adminv1connect.AdminServicePutDeclaredKeysProcedure:  operator,
		adminv1connect.AdminServicePutPolicyProcedure:        operator,
		adminv1connect.AdminServicePublishSnapshotProcedure:  operator,
		adminv1connect.AdminServiceGetConservationProcedure:  operator,
		adminv1connect.AdminServiceApplyTenantsProcedure:     operator,
		adminv1connect.AdminServiceReloadTenantsProcedure:    both,
		adminv1connect.AdminServiceListHoldsProcedure:        operator,
		adminv1connect.AdminServiceDecideHoldProcedure:       both,
		adminv1connect.AdminServiceListAuditRecordsProcedure: operator,
	}
}
