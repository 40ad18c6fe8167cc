package rows_test

import (
	"encoding/csv"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tollgate-platform/tollgate/cmd/tollgate/internal/rows"
)

func write(t *testing.T, format string, total []rows.Cell, all ...[]rows.Cell) string {
	t.Helper()
	var out strings.Builder
	names := make([]string, len(all[0]))
	for i, c := range all[0] {
		names[i] = c.Name
	}
	w, err := rows.New(format, &out, names)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range all {
		if err := w.Row(row); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.End(total); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func row(model any, units int64) []rows.Cell {
	return []rows.Cell{{"model", model}, {"units", units}, {"holds", true}, {"tokens", nil}}
}

func TestEveryForm(t *testing.T) {
	t.Parallel()
	for format, want := range map[string]string{
		"table": "model  units                holds  tokens\na,b    9223372036854775807  yes    -\n?[2J   2                    yes    -\nTOTAL  3                    yes    -\n",
		"csv":   "model,units,holds,tokens\n\"a,b\",9223372036854775807,yes,\n\x1b[2J,2,yes,\n",
		"json":  "{\"rows\":[\n{\"model\":\"a,b\",\"units\":9223372036854775807,\"holds\":true,\"tokens\":null},\n{\"model\":\"\\u001b[2J\",\"units\":2,\"holds\":true,\"tokens\":null}],\n\"total\":{\"model\":\"TOTAL\",\"units\":3,\"holds\":true,\"tokens\":null}}\n",
		"jsonl": "{\"model\":\"a,b\",\"units\":9223372036854775807,\"holds\":true,\"tokens\":null}\n{\"model\":\"\\u001b[2J\",\"units\":2,\"holds\":true,\"tokens\":null}\n",
	} {
		if got := write(t, format, row("TOTAL", 3), row("a,b", math.MaxInt64), row("\x1b[2J", 2)); got != want {
			t.Errorf("%s:\n%q, want\n%q", format, got, want)
		}
	}
	if _, err := rows.New("yaml", nil, nil); err == nil || !strings.Contains(err.Error(), "format: must be one of") {
		t.Errorf("an unknown form: %v", err)
	}
}

// TestNoCellIsAFormula: whatever a text is, no spreadsheet calculates it, and
// it reads back.
func TestNoCellIsAFormula(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		text := rapid.StringMatching(`[=+@\-a"',; 0-9]{0,6}`).Draw(r, "text")
		read, err := csv.NewReader(strings.NewReader(write(t, "csv", nil, row(text, 1)))).ReadAll()
		if err != nil {
			r.Fatal(err)
		}
		got := read[1][0]
		if got != "" && strings.ContainsRune("=+-@", rune(got[0])) {
			r.Fatalf("%q is a formula", got)
		}
		if got != text && got != "'"+text {
			r.Fatalf("%q became %q", text, got)
		}
	})
}

// TestJSONIsValid: rows are JSON for any text and any number of rows.
func TestJSONIsValid(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		var all [][]rows.Cell
		for range rapid.IntRange(1, 4).Draw(r, "rows") {
			all = append(all, row(rapid.String().Draw(r, "text"), rapid.Int64().Draw(r, "units")))
		}
		var read struct {
			Rows []struct{ Units int64 }
		}
		if err := json.Unmarshal([]byte(write(t, "json", nil, all...)), &read); err != nil || len(read.Rows) != len(all) {
			r.Fatal(read, err)
		}
		for i := range all {
			if read.Rows[i].Units != all[i][1].Value {
				r.Fatalf("%v became %v", all[i], read.Rows[i])
			}
		}
	})
}

func TestDollarsAreExact(t *testing.T) {
	t.Parallel()
	for nano, want := range map[int64]string{
		0: "0.000000000", 1: "0.000000001", 1_500_000_000: "1.500000000", -1: "-0.000000001",
		math.MaxInt64: "9223372036.854775807", math.MinInt64: "-9223372036.854775808",
	} {
		if got := rows.USD(nano); got != want {
			t.Errorf("%d: %s, want %s", nano, got, want)
		}
	}
}
