module github.com/tollgate-platform/tollgate/services/usage

go 1.26.0
