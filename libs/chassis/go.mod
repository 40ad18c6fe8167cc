module github.com/tollgate-platform/tollgate/libs/chassis

go 1.26.0
