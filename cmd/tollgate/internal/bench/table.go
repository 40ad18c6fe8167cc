package bench

import (
	"fmt"
	"io"
	"time"
)

const line = "%-9s %7s  %21s  %21s  %19s  %9s  %9s  %8s  %8s  %s\n"

// head prints what the rows are of.
func head(w io.Writer, r Report) {
	fmt.Fprintf(w, "%d tenants, %d tokens a stream, %d ms before each frame; %d processors, %s.\n", r.Tenants, r.Tokens, r.PaceMillis, r.Processors, r.GoVersion)
	fmt.Fprintf(w, "Callers, provider and gateway share the machine; added is what the gateway costs beyond the direct run.\n\n")
	fmt.Fprintf(w, line, "ledger", "streams", "first token, direct", "through the gateway", "added", "streams", "reserva-", "CPU per", "heap per", "")
	fmt.Fprintf(w, line, "", "", "p50 / p99", "p50 / p99", "p50 / p99", "/s", "tions/s", "request", "stream", "reconciled")
}

func row(w io.Writer, r Run) {
	pair := func(p50, p99 int64) string { return micros(p50) + " / " + micros(p99) }
	verdict := "yes"
	if !r.sound() {
		verdict = "NO"
	}
	fmt.Fprintf(w, line, r.Backend, fmt.Sprint(r.Streams), pair(r.Direct.TTFTp50Micros, r.Direct.TTFTp99Micros),
		pair(r.Gateway.TTFTp50Micros, r.Gateway.TTFTp99Micros), pair(r.Added.TTFTp50Micros, r.Added.TTFTp99Micros),
		fmt.Sprintf("%.0f", r.Gateway.StreamsPerSecond), fmt.Sprintf("%.0f", r.Gateway.ReservationsPerSecond),
		micros(int64(r.Added.CPUMicrosPerRequest)), fmt.Sprintf("%.1f KiB", float64(r.Added.HeapBytesPerStream)/1024), verdict)
	for _, f := range r.Failures {
		fmt.Fprintf(w, "  one of %d failed requests: %s\n", r.Failed, f)
	}
	for _, a := range r.Accounts {
		for _, p := range a.Problems {
			fmt.Fprintf(w, "  %s: %s\n", a.Tenant, p)
		}
	}
}

func micros(us int64) string {
	return (time.Duration(us) * time.Microsecond).Round(10 * time.Microsecond).String()
}

// foot sums up.
func foot(w io.Writer, r Report) {
	var requests, nano int64
	seen := map[string]Account{}
	for _, run := range r.Runs {
		for _, a := range run.Accounts {
			seen[a.Tenant] = a // sums grow from run to run: the last is the whole
		}
	}
	for _, a := range seen {
		requests += a.Requests
		nano += a.Billed
	}
	if !r.Reconciled {
		fmt.Fprintf(w, "\nNOT RECONCILED; see above.\n")
		return
	}
	fmt.Fprintf(w, "\nReconciled: %d accounts, %d requests, %d nano-USD: the provider's tokens at the catalogue's prices, the ledger's bills and /v1/usage agree to the unit.\n",
		len(seen), requests, nano)
}
