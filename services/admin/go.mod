module github.com/tollgate-platform/tollgate/services/admin

go 1.26.0
