module github.com/tollgate-platform/tollgate/tests

go 1.26.0

require (
	buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go v1.36.12-20260825204119-511051f7f437.2
	buf.build/go/protovalidate v1.4.0
	connectrpc.com/connect v1.21.1
	github.com/jackc/pgx/v5 v5.13.0
	github.com/tollgate-platform/tollgate/proto v0.0.0
	go.opentelemetry.io/otel/metric v1.47.0
	google.golang.org/protobuf v1.36.12
	pgregory.net/rapid v1.3.0
)

require (
	connectrpc.com/connect/v2 v2.0.0 // indirect
	connectrpc.com/grpchealth v1.5.0 // indirect
	connectrpc.com/grpcreflect v1.3.1 // indirect
	connectrpc.com/validate v0.9.0 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/dustin/go-humanize v1.1.0 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/mattn/go-isatty v0.0.24 // indirect
	github.com/mfridman/interpolate v0.2.0 // indirect
	github.com/ncruces/go-strftime v1.1.0 // indirect
	github.com/pressly/goose/v3 v3.30.1 // indirect
	github.com/remyoudompheng/bigfft v0.0.0-20230129092748-24d4a6f8daec // indirect
	github.com/riverqueue/river v0.51.2 // indirect
	github.com/riverqueue/river/riverdriver v0.51.2 // indirect
	github.com/riverqueue/river/riverdriver/riverpgxv5 v0.51.2 // indirect
	github.com/riverqueue/river/riverdriver/riversqlite v0.51.2 // indirect
	github.com/riverqueue/river/rivershared v0.51.2 // indirect
	github.com/riverqueue/river/rivertype v0.51.2 // indirect
	github.com/sethvargo/go-retry v0.5.0 // indirect
	github.com/tidwall/gjson v1.20.0 // indirect
	github.com/tidwall/match v1.2.0 // indirect
	github.com/tidwall/pretty v1.2.1 // indirect
	github.com/tidwall/sjson v1.2.5 // indirect
	go.opentelemetry.io/otel v1.47.0 // indirect
	go.opentelemetry.io/otel/trace v1.47.0 // indirect
	go.uber.org/multierr v1.11.0 // indirect
	golang.org/x/sync v0.25.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
	modernc.org/libc v1.80.2 // indirect
	modernc.org/mathutil v1.7.1 // indirect
	modernc.org/memory v1.12.1 // indirect
	modernc.org/sqlite v1.62.0 // indirect
)

require (
	cel.dev/cel-go v0.32.0 // indirect
	cel.dev/expr v0.25.3 // indirect
	github.com/antlr4-go/antlr/v4 v4.13.1 // indirect
	github.com/golang-jwt/jwt/v5 v5.3.1
	github.com/tollgate-platform/tollgate/libs/admission v0.0.0
	github.com/tollgate-platform/tollgate/libs/auth v0.0.0
	github.com/tollgate-platform/tollgate/libs/chassis v0.0.0
	github.com/tollgate-platform/tollgate/libs/kit v0.0.0
	github.com/tollgate-platform/tollgate/libs/ledger v0.0.0
	github.com/tollgate-platform/tollgate/libs/receipt v0.0.0
	github.com/tollgate-platform/tollgate/libs/runtime v0.0.0
	github.com/tollgate-platform/tollgate/libs/testkit v0.0.0
	github.com/tollgate-platform/tollgate/services/admin v0.0.0
	github.com/tollgate-platform/tollgate/services/gateway v0.0.0
	github.com/tollgate-platform/tollgate/services/lease v0.0.0
	github.com/tollgate-platform/tollgate/services/receipts v0.0.0
	github.com/tollgate-platform/tollgate/services/snapshot v0.0.0
	github.com/tollgate-platform/tollgate/services/usage v0.0.0
	github.com/tollgate-platform/tollgate/sql v0.0.0 // indirect
	go.yaml.in/yaml/v3 v3.0.6
	golang.org/x/exp v0.0.0-20261109185158-a52e3aef5920 // indirect
	golang.org/x/text v0.44.0 // indirect
	google.golang.org/genproto/googleapis/api v0.0.0-20261110000943-09e21b237f2c // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20261110000943-09e21b237f2c // indirect
)

replace (
	github.com/tollgate-platform/tollgate/cmd/tollgate => ../cmd/tollgate
	github.com/tollgate-platform/tollgate/libs/admission => ../libs/admission
	github.com/tollgate-platform/tollgate/libs/auth => ../libs/auth
	github.com/tollgate-platform/tollgate/libs/chassis => ../libs/chassis
	github.com/tollgate-platform/tollgate/libs/kit => ../libs/kit
	github.com/tollgate-platform/tollgate/libs/ledger => ../libs/ledger
	github.com/tollgate-platform/tollgate/libs/receipt => ../libs/receipt
	github.com/tollgate-platform/tollgate/libs/runtime => ../libs/runtime
	github.com/tollgate-platform/tollgate/libs/testkit => ../libs/testkit
	github.com/tollgate-platform/tollgate/proto => ../proto
	github.com/tollgate-platform/tollgate/services/admin => ../services/admin
	github.com/tollgate-platform/tollgate/services/gateway => ../services/gateway
	github.com/tollgate-platform/tollgate/services/lease => ../services/lease
	github.com/tollgate-platform/tollgate/services/receipts => ../services/receipts
	github.com/tollgate-platform/tollgate/services/snapshot => ../services/snapshot
	github.com/tollgate-platform/tollgate/services/usage => ../services/usage
	github.com/tollgate-platform/tollgate/sql => ../sql
)
