module github.com/tollgate-platform/tollgate/services/gateway

go 1.26.0
