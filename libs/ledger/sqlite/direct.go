package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strconv"
	"strings"
)

// direct has the writer's statements on the driver's own connection, past
// database/sql, whose conversion of arguments and whose locks cost about as
// much as SQLite takes to insert a row. It belongs to the one connection and is
// used inside a transaction only, so by one goroutine at a time.
type direct struct {
	on         any // the connection that the statements belong to
	statements map[string]driver.StmtExecContext
	args       []driver.NamedValue
}

// exec runs a statement that gives no rows. conn is the driver's connection,
// with a transaction open.
func (d *direct) exec(ctx context.Context, conn any, query string, args []any) (sql.Result, error) {
	stmt, err := d.statement(ctx, conn, query)
	if err != nil {
		return nil, err
	}
	d.args = d.args[:0]
	for i, arg := range args {
		switch arg.(type) {
		case int64, string, []byte: // all that the schema has
		default:
			return nil, fmt.Errorf("argument %d of a statement is a %T", i+1, arg)
		}
		d.args = append(d.args, driver.NamedValue{Ordinal: i + 1, Value: arg})
	}
	result, err := stmt.ExecContext(ctx, d.args)
	clear(d.args) // keep nobody's memory
	return result, err
}

func (d *direct) statement(ctx context.Context, conn any, query string) (driver.StmtExecContext, error) {
	if d.on != conn { // the pool replaced it; the old one took its statements along
		d.on, d.statements = conn, map[string]driver.StmtExecContext{}
	}
	if stmt := d.statements[query]; stmt != nil {
		return stmt, nil
	}
	preparer, ok := conn.(driver.ConnPrepareContext)
	if !ok {
		return nil, fmt.Errorf("a %T can't prepare statements", conn)
	}
	stmt, err := preparer.PrepareContext(ctx, positional(query))
	if err != nil {
		return nil, err
	}
	execer, ok := stmt.(driver.StmtExecContext)
	if !ok {
		_ = stmt.Close()
		return nil, fmt.Errorf("a %T can't be executed", stmt)
	}
	d.statements[query] = execer
	return execer, nil
}

// forget closes the statements of the connection, which must be open still.
func (d *direct) forget() {
	for _, stmt := range d.statements {
		if s, ok := stmt.(driver.Stmt); ok {
			_ = s.Close() // it is closed with its connection at the latest
		}
	}
	d.on, d.statements = nil, nil
}

// positional makes ?1, ?2, ?3 plain question marks where they come in that
// order, once each. A numbered parameter has a name, which the driver fetches
// and compares for each row.
func positional(query string) string {
	parts := strings.Split(query, "?")
	for i := 1; i < len(parts); i++ {
		digits := 0
		for digits < len(parts[i]) && '0' <= parts[i][digits] && parts[i][digits] <= '9' {
			digits++
		}
		if parts[i][:digits] != strconv.Itoa(i) {
			return query
		}
		parts[i] = parts[i][digits:]
	}
	return strings.Join(parts, "?")
}
