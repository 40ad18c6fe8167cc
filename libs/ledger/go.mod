module github.com/tollgate-platform/tollgate/libs/ledger

go 1.26.0
