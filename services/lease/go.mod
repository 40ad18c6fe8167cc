module github.com/tollgate-platform/tollgate/services/lease

go 1.26.0
