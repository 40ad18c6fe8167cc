// Package rows writes rows of figures as a table, as CSV or as JSON, one at a
// time, so that no output has to fit memory.
//
// Figures are integers and are written with all their digits; money is a decimal
// string besides. In CSV a text that a spreadsheet would take for a formula is
// quoted by an apostrophe. A Writer is for one goroutine; after an error it
// must not be used.
package rows

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
)

// A Cell is one field of a row. Value is a string, an int64, a bool, or nil for
// what was not reported.
type Cell struct {
	Name  string
	Value any
}

// A Writer writes rows with the same fields, one below the other.
type Writer interface {
	Row(row []Cell) error
	// End ends the output. Total, the row of what all rows add up to, is written
	// where the form has a place for it beside the data: in a table and in JSON.
	End(total []Cell) error
}

// Formats are the forms that New knows.
const Formats = "table,csv,json,jsonl"

// New makes a Writer of a form of Formats. Names are the columns, in order.
func New(format string, out io.Writer, names []string) (Writer, error) {
	switch format {
	case "table":
		t := &table{tabs: tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)}
		return t, t.line(names)
	case "csv":
		w := csv.NewWriter(out)
		return &commas{csv: w}, w.Write(names)
	case "json":
		_, err := io.WriteString(out, "{\"rows\":[")
		return &document{out: out}, err
	case "jsonl":
		return lines{out}, nil
	}
	return nil, fmt.Errorf("format: must be one of %s, not %q", Formats, format)
}

// USD spells nano-dollars as dollars, exactly.
func USD(nano int64) string {
	sign, rest := "", uint64(nano) //nolint:gosec // the sign is taken care of
	if nano < 0 {
		sign, rest = "-", -rest
	}
	return fmt.Sprintf("%s%d.%09d", sign, rest/1e9, rest%1e9)
}

func text(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	case bool:
		if v {
			return "yes"
		}
		return "no"
	}
	panic(fmt.Sprintf("rows: a cell holds a %T", v))
}

// tableRows is how many rows a table lines up together.
const tableRows = 1000

type table struct {
	tabs *tabwriter.Writer
	rows int
}

func (t *table) line(cells []string) error {
	_, err := fmt.Fprintln(t.tabs, strings.Join(cells, "\t"))
	return err
}

func (t *table) Row(row []Cell) error {
	cells := make([]string, len(row))
	for i, c := range row {
		if cells[i] = printable(text(c.Value)); cells[i] == "" {
			cells[i] = "-"
		}
	}
	if t.rows++; t.rows%tableRows == 0 {
		if err := t.tabs.Flush(); err != nil {
			return err
		}
	}
	return t.line(cells)
}

func (t *table) End(total []Cell) error {
	if total != nil {
		if err := t.Row(total); err != nil {
			return err
		}
	}
	return t.tabs.Flush()
}

// printable keeps control characters from a terminal and from the columns.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || (r >= 0x80 && r < 0xa0) {
			return '?'
		}
		return r
	}, s)
}

type commas struct{ csv *csv.Writer }

func (c *commas) Row(row []Cell) error {
	cells := make([]string, len(row))
	for i, cell := range row {
		cells[i] = text(cell.Value)
		if _, isText := cell.Value.(string); isText {
			cells[i] = inert(cells[i])
		}
	}
	return c.csv.Write(cells)
}

// inert makes a text one that a spreadsheet doesn't calculate.
func inert(s string) string {
	if s != "" && strings.ContainsRune("=+-@\t\r\n", rune(s[0])) {
		return "'" + s
	}
	return s
}

func (c *commas) End([]Cell) error {
	c.csv.Flush()
	return c.csv.Error()
}

// object writes a row as a JSON object, its fields in order.
func object(row []Cell) ([]byte, error) {
	b := []byte{'{'}
	for i, c := range row {
		if i > 0 {
			b = append(b, ',')
		}
		name, err := json.Marshal(c.Name)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(c.Value)
		if err != nil {
			return nil, err
		}
		b = append(append(append(b, name...), ':'), value...)
	}
	return append(b, '}'), nil
}

type lines struct{ out io.Writer }

func (l lines) Row(row []Cell) error {
	b, err := object(row)
	if err != nil {
		return err
	}
	_, err = l.out.Write(append(b, '\n'))
	return err
}

func (lines) End([]Cell) error { return nil }

type document struct {
	out  io.Writer
	rows int
}

func (d *document) Row(row []Cell) error {
	b, err := object(row)
	if err != nil {
		return err
	}
	between := "\n"
	if d.rows++; d.rows > 1 {
		between = ",\n"
	}
	_, err = d.out.Write(append([]byte(between), b...))
	return err
}

func (d *document) End(total []Cell) error {
	end := "]}\n"
	if total != nil {
		b, err := object(total)
		if err != nil {
			return err
		}
		end = "],\n\"total\":" + string(b) + "}\n"
	}
	_, err := io.WriteString(d.out, end)
	return err
}
