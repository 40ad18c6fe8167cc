module github.com/tollgate-platform/tollgate/libs/receipt

go 1.26.0
