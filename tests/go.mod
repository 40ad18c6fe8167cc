module github.com/tollgate-platform/tollgate/tests

go 1.26.0
