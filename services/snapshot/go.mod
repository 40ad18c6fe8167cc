module github.com/tollgate-platform/tollgate/services/snapshot

go 1.26.0
