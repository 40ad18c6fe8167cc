package main

import (
	"fmt"
	"strings"

	"github.com/tollgate-platform/tollgate/libs/testkit/mockprovider"
)

type mockProviderCommand struct {
	Listen string `default:"127.0.0.1:8090" help:"The address to listen on; the sample catalogue expects the default."`
}

// Help lists the scenarios.
func (mockProviderCommand) Help() string {
	return "A request chooses a scenario by its model's name (behind an optional mock/), by the header X-Mock-Scenario or by the body's mock_scenario: " +
		strings.Join(mockprovider.Scenarios(), ", ") + "."
}

// Run serves until the process is told to stop.
func (c mockProviderCommand) Run(p *process) error {
	mock, err := mockprovider.New(mockprovider.Options{}).Listen(p.ctx, c.Listen)
	if err != nil {
		return fmt.Errorf("mock-provider: --listen %s: %w", c.Listen, err)
	}
	fmt.Fprintf(p.stdout, "mock provider at %s; stop it with Ctrl-C\n", mock.URL)
	<-p.ctx.Done()
	return mock.Close()
}
