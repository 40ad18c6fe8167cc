module github.com/tollgate-platform/tollgate/libs/receipt

go 1.26.0

replace github.com/tollgate-platform/tollgate/proto => ../../proto

require github.com/tollgate-platform/tollgate/libs/kit v0.0.0

replace github.com/tollgate-platform/tollgate/sql => ../../sql

replace github.com/tollgate-platform/tollgate/libs/admission => ../../libs/admission

replace github.com/tollgate-platform/tollgate/libs/ledger => ../../libs/ledger

replace github.com/tollgate-platform/tollgate/libs/runtime => ../../libs/runtime

replace github.com/tollgate-platform/tollgate/libs/auth => ../../libs/auth

replace github.com/tollgate-platform/tollgate/libs/chassis => ../../libs/chassis

replace github.com/tollgate-platform/tollgate/libs/kit => ../../libs/kit

replace github.com/tollgate-platform/tollgate/libs/testkit => ../../libs/testkit

replace github.com/tollgate-platform/tollgate/services/lease => ../../services/lease

replace github.com/tollgate-platform/tollgate/services/snapshot => ../../services/snapshot

replace github.com/tollgate-platform/tollgate/services/usage => ../../services/usage

replace github.com/tollgate-platform/tollgate/services/receipts => ../../services/receipts

replace github.com/tollgate-platform/tollgate/services/gateway => ../../services/gateway

replace github.com/tollgate-platform/tollgate/services/admin => ../../services/admin

replace github.com/tollgate-platform/tollgate/cmd/tollgate => ../../cmd/tollgate

replace github.com/tollgate-platform/tollgate/tests => ../../tests
