module github.com/tollgate-platform/tollgate/proto

go 1.26.0
