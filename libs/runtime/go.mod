module github.com/tollgate-platform/tollgate/libs/runtime

go 1.26.0
