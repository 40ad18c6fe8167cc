module github.com/tollgate-platform/tollgate/libs/auth

go 1.26.0
