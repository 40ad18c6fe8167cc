module github.com/tollgate-platform/tollgate/libs/testkit

go 1.26.0
