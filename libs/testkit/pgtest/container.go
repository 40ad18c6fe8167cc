package pgtest

import (
	"context"
	"fmt"
	"net/url"
	"os/exec"
	"strings"
	"time"
)

// images are looked for in this order; none is ever pulled.
func images() []string {
	return []string{"postgres:18", "postgres:17", "postgres:16", "postgres:15", "postgres:latest", "tollgate/postgres:latest"}
}

// localImage says which postgres image this machine has already, if its Docker
// engine answers. It goes through the docker command: the testcontainers modules
// would put some sixty requirements into every go.mod that tests a database.
func localImage(ctx context.Context) (string, bool) {
	docker, err := exec.LookPath("docker")
	if err != nil {
		return "", false
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for _, image := range images() {
		if exec.CommandContext(ctx, docker, "image", "inspect", image).Run() == nil {
			return image, true
		}
	}
	return "", false
}

// password of a server that listens on this machine only and ends with the tests.
const password = "postgres"

// startContainer runs image until stop; its data lives in memory unless durable.
func startContainer(ctx context.Context, image string, durable bool) (*server, error) {
	args := []string{
		"run", "--detach", "--rm", "--pull=never", "--publish=127.0.0.1::5432",
		"--env=POSTGRES_PASSWORD=" + password, "--env=PGDATA=/tmp/pgdata",
	}
	if !durable {
		args = append(args, "--tmpfs=/tmp/pgdata:mode=0777")
	}
	args = append(args, image, "postgres", "-c", "max_connections=200")
	if !durable {
		args = append(args, "-F", "-c", "full_page_writes=off", "-c", "synchronous_commit=off")
	}
	id, err := docker(ctx, args...)
	if err != nil {
		return nil, err
	}
	stop := func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		_, _ = docker(ctx, "rm", "--force", "--volumes", id) //nolint:errcheck // --rm removes it anyway once it ends
	}
	ports, err := docker(ctx, "port", id, "5432/tcp")
	if err != nil {
		stop()
		return nil, err
	}
	host, _, _ := strings.Cut(ports, "\n")
	srv := &server{
		url:  &url.URL{Scheme: "postgres", User: url.UserPassword("postgres", password), Host: host, Path: "/postgres", RawQuery: "sslmode=disable"},
		stop: stop,
		// A postgres image may be older than 15, which has no strategies.
	}
	if err := srv.await(ctx, nil); err != nil {
		stop()
		return nil, fmt.Errorf("pgtest: container of %s: %w", image, err)
	}
	return srv, nil
}

func docker(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "docker", args...).CombinedOutput() //nolint:gosec // constant arguments and an id docker gave
	if err != nil {
		return "", fmt.Errorf("pgtest: docker %s: %w\n%s", args[0], err, out)
	}
	return strings.TrimSpace(string(out)), nil
}
