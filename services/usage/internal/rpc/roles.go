package rpc

import (
	"github.com/tollgate-platform/tollgate/libs/chassis/identity"
	"github.com/tollgate-platform/tollgate/proto/gen/tollgate/usage/v1/usagev1connect"
)

// Roles says who may call each procedure: instances write, both read, and
// what goes across accounts is for operators.
func Roles() identity.Table {
	instance := identity.Of(identity.Instance)
	operator := identity.Of(identity.Operator)
	both := identity.Of(identity.Instance, identity.Operator)
	return identity.Table{
		usagev1connect.UsageServiceIngestProcedure:          instance,
		usagev1connect.UsageServiceGetUsageProcedure:        both,
		usagev1connect.UsageServiceListUsageProcedure:       both,
		usagev1connect.UsageServiceListDayTotalsProcedure:   both,
		usagev1connect.UsageServiceSummarizeUsageProcedure:  operator,
		usagev1connect.UsageServiceExportUsageProcedure:     operator,
		usagev1connect.UsageServiceRecordDecisionsProcedure: instance,
		usagev1connect.UsageServiceListDecisionsProcedure:   both,
	}
}
