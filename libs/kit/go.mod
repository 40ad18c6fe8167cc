module github.com/tollgate-platform/tollgate/libs/kit

go 1.26.0
