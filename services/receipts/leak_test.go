package receipts

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails when a goroutine outlives its chain.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
