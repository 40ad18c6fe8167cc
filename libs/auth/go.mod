module github.com/tollgate-platform/tollgate/libs/auth

go 1.26.0

require (
	github.com/tollgate-platform/tollgate/libs/kit v0.0.0
	pgregory.net/rapid v1.3.0
)

replace (
	github.com/tollgate-platform/tollgate/cmd/tollgate => ../../cmd/tollgate
	github.com/tollgate-platform/tollgate/libs/admission => ../../libs/admission
	github.com/tollgate-platform/tollgate/libs/chassis => ../../libs/chassis
	github.com/tollgate-platform/tollgate/libs/kit => ../../libs/kit
	github.com/tollgate-platform/tollgate/libs/ledger => ../../libs/ledger
	github.com/tollgate-platform/tollgate/libs/receipt => ../../libs/receipt
	github.com/tollgate-platform/tollgate/libs/runtime => ../../libs/runtime
	github.com/tollgate-platform/tollgate/libs/testkit => ../../libs/testkit
	github.com/tollgate-platform/tollgate/proto => ../../proto
	github.com/tollgate-platform/tollgate/services/admin => ../../services/admin
	github.com/tollgate-platform/tollgate/services/gateway => ../../services/gateway
	github.com/tollgate-platform/tollgate/services/lease => ../../services/lease
	github.com/tollgate-platform/tollgate/services/receipts => ../../services/receipts
	github.com/tollgate-platform/tollgate/services/snapshot => ../../services/snapshot
	github.com/tollgate-platform/tollgate/services/usage => ../../services/usage
	github.com/tollgate-platform/tollgate/sql => ../../sql
	github.com/tollgate-platform/tollgate/tests => ../../tests
)
