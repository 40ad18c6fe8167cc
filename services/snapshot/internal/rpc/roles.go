package rpc

import (
	"github.com/tollgate-platform/tollgate/libs/chassis/identity"
	"github.com/tollgate-platform/tollgate/proto/gen/tollgate/snapshot/v1/snapshotv1connect"
)

// Roles says who may call each procedure: instances take the feeds, operators
// look at one principal or policy.
func Roles() identity.Table {
	instance := identity.Of(identity.Instance)
	both := identity.Of(identity.Instance, identity.Operator)
	return identity.Table{
		snapshotv1connect.SnapshotServiceGetProcedure:       both,
		snapshotv1connect.SnapshotServiceListProcedure:      instance,
		snapshotv1connect.SnapshotServiceBatchGetProcedure:  instance,
		snapshotv1connect.SnapshotServiceWatchProcedure:     instance,
		snapshotv1connect.SnapshotServiceListKeysProcedure:  instance,
		snapshotv1connect.SnapshotServiceWatchKeysProcedure: instance,
		snapshotv1connect.SnapshotServiceGetPolicyProcedure: both,
	}
}
