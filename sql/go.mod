module github.com/tollgate-platform/tollgate/sql

go 1.26.0
