module github.com/tollgate-platform/tollgate/services/receipts

go 1.26.0
