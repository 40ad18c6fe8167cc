module github.com/tollgate-platform/tollgate/libs/admission

go 1.26.0
