package demo

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestComposeDeclaresTheWalksTenants guards that deploy/compose, against which
// `tollgate check` walks, has the walk's catalogue, prices, tenants and keys.
func TestComposeDeclaresTheWalksTenants(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := writeTenants(dir); err != nil {
		t.Fatal(err)
	}
	catalogue := fmt.Sprintf(models, "http://mock-provider:8090/v1", "http://client:8091/v1")
	if err := write(filepath.Join(dir, "models.yaml"), catalogue); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"models.yaml", "tenants.yaml"} {
		want, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("..", "..", "..", "..", "deploy", "compose", "config", name)
		got, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not the walk's, which is:\n%s", path, want)
		}
	}
}
