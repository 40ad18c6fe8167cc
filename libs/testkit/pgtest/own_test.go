package pgtest

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// TestOwnServerFreezesAndComesBack guards, for each kind of server that this
// machine has, that a frozen one answers nothing and that what was committed is
// there after it was frozen and after it was killed.
func TestOwnServerFreezesAndComesBack(t *testing.T) {
	t.Parallel()
	kinds := map[string]func(t testing.TB) *Own{}
	if bin, ok := binDir(); ok {
		kinds["cluster"] = func(t testing.TB) *Own { t.Helper(); return ownCluster(t, bin) }
	}
	if image, ok := localImage(t.Context()); ok {
		kinds["container"] = func(t testing.TB) *Own { t.Helper(); return ownContainer(t, image) }
	}
	if len(kinds) == 0 {
		t.Fatal(errNoServer)
	}
	for name, start := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := start(t)
			t.Log(o.Kind())
			conn := connect(t, o)
			if _, err := conn.Exec(t.Context(), "CREATE TABLE kept AS SELECT 1 AS n"); err != nil {
				t.Fatal(err)
			}
			o.Pause()
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			if _, err := conn.Exec(ctx, "SELECT 1"); err == nil || ctx.Err() == nil {
				t.Errorf("a frozen server answered: %v", err)
			}
			o.Resume()
			kept(t, o)
			o.Kill()
			o.Start()
			kept(t, o)
		})
	}
}

func connect(t *testing.T, o *Own) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), o.DSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) }) // its server may have gone
	return conn
}

func kept(t *testing.T, o *Own) {
	t.Helper()
	var n int
	if err := connect(t, o).QueryRow(t.Context(), "SELECT n FROM kept").Scan(&n); err != nil || n != 1 {
		t.Errorf("%d, %v", n, err)
	}
}
