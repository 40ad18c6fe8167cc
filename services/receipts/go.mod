module github.com/tollgate-platform/tollgate/services/receipts

go 1.26.0

require (
	github.com/tollgate-platform/tollgate/libs/kit v0.0.0
	github.com/tollgate-platform/tollgate/libs/receipt v0.0.0
	go.opentelemetry.io/otel/sdk/metric v1.47.0
	go.uber.org/goleak v1.3.0
	pgregory.net/rapid v1.3.0
)

require (
	buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go v1.36.12-20260825204119-511051f7f437.2 // indirect
	buf.build/go/protovalidate v1.4.0 // indirect
	cel.dev/cel-go v0.32.0 // indirect
	cel.dev/expr v0.25.3 // indirect
	connectrpc.com/connect/v2 v2.0.0 // indirect
	connectrpc.com/grpchealth v1.5.0 // indirect
	connectrpc.com/grpcreflect v1.3.1 // indirect
	connectrpc.com/otelconnect v0.12.0 // indirect
	connectrpc.com/validate v0.9.0 // indirect
	github.com/antlr4-go/antlr/v4 v4.13.1 // indirect
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/cenkalti/backoff/v5 v5.0.3 // indirect
	github.com/go-logr/logr v1.4.4 // indirect
	github.com/go-logr/stdr v1.2.2 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/grpc-ecosystem/grpc-gateway/v2 v2.30.0 // indirect
	github.com/lmittmann/tint v1.2.1 // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/pelletier/go-toml/v2 v2.4.3 // indirect
	github.com/prometheus/client_golang v1.25.0 // indirect
	github.com/prometheus/client_model v0.6.3 // indirect
	github.com/prometheus/common v0.72.0 // indirect
	github.com/prometheus/otlptranslator v1.0.0 // indirect
	github.com/prometheus/procfs v0.23.0 // indirect
	github.com/tollgate-platform/tollgate/libs/ledger v0.0.0 // indirect
	go.opentelemetry.io/auto/sdk v1.2.1 // indirect
	go.opentelemetry.io/otel/exporters/otlp/otlptrace v1.47.0 // indirect
	go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp v1.47.0 // indirect
	go.opentelemetry.io/otel/exporters/prometheus v0.69.0 // indirect
	go.opentelemetry.io/otel/log v1.47.0 // indirect
	go.opentelemetry.io/otel/sdk v1.47.0 // indirect
	go.opentelemetry.io/otel/trace v1.47.0 // indirect
	go.opentelemetry.io/proto/otlp v1.11.0 // indirect
	go.yaml.in/yaml/v3 v3.0.6 // indirect
	golang.org/x/exp v0.0.0-20261109185158-a52e3aef5920 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
	golang.org/x/text v0.44.0 // indirect
	google.golang.org/genproto/googleapis/api v0.0.0-20261110000943-09e21b237f2c // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20261110000943-09e21b237f2c // indirect
	google.golang.org/grpc v1.85.0 // indirect
)

require (
	connectrpc.com/connect v1.21.1
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/tollgate-platform/tollgate/libs/chassis v0.0.0
	github.com/tollgate-platform/tollgate/proto v0.0.0
	go.opentelemetry.io/otel v1.47.0
	go.opentelemetry.io/otel/metric v1.47.0
	google.golang.org/protobuf v1.36.12 // indirect
)

replace (
	github.com/tollgate-platform/tollgate/cmd/tollgate => ../../cmd/tollgate
	github.com/tollgate-platform/tollgate/libs/admission => ../../libs/admission
	github.com/tollgate-platform/tollgate/libs/auth => ../../libs/auth
	github.com/tollgate-platform/tollgate/libs/chassis => ../../libs/chassis
	github.com/tollgate-platform/tollgate/libs/kit => ../../libs/kit
	github.com/tollgate-platform/tollgate/libs/ledger => ../../libs/ledger
	github.com/tollgate-platform/tollgate/libs/receipt => ../../libs/receipt
	github.com/tollgate-platform/tollgate/libs/runtime => ../../libs/runtime
	github.com/tollgate-platform/tollgate/libs/testkit => ../../libs/testkit
	github.com/tollgate-platform/tollgate/proto => ../../proto
	github.com/tollgate-platform/tollgate/services/admin => ../../services/admin
	github.com/tollgate-platform/tollgate/services/gateway => ../../services/gateway
	github.com/tollgate-platform/tollgate/services/lease => ../../services/lease
	github.com/tollgate-platform/tollgate/services/snapshot => ../../services/snapshot
	github.com/tollgate-platform/tollgate/services/usage => ../../services/usage
	github.com/tollgate-platform/tollgate/sql => ../../sql
	github.com/tollgate-platform/tollgate/tests => ../../tests
)
