module github.com/tollgate-platform/tollgate/cmd/tollgate

go 1.26.0
