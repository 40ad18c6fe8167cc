package config_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/tollgate-platform/tollgate/libs/chassis/config"
)

type server struct {
	Bind  string   `config:"bind_addr"`
	Port  int      `config:"port"`
	On    bool     `config:"on"`
	Limit int64    `config:"limit"`
	Share float64  `config:"share"`
	Hosts []string `config:"hosts"`
}

type shared struct {
	Top string `config:"top"`
}

type settings struct {
	Shared shared `config:",inline"`
	Server server `config:"server"`
	Deep   struct {
		Inner server `config:"inner"`
	} `config:"deep"`
}

func (s *settings) Validate() error {
	if s.Server.Port == 1 {
		return errors.New("server.port: must not be 1")
	}
	return nil
}

func TestFileThenEnvironment(t *testing.T) {
	t.Parallel()
	got := settings{Server: server{Bind: "127.0.0.1", Port: 8080, Limit: 5}}
	err := config.Load(&got, config.Source{
		Name: "x.toml",
		File: []byte("top = 't'\n[server]\nport = 9000\non = true\nshare = 1\nhosts = ['a']\n[deep.inner]\nport = 2\n"),
		Environ: []string{
			"PATH=/bin", "TOLLGATE__SERVER__PORT=9001", "TOLLGATE__DEEP__INNER__HOSTS=a, b",
			"TOLLGATE_CONFIG=not-a-setting",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := settings{Shared: shared{Top: "t"}, Server: server{Bind: "127.0.0.1", Port: 9001, On: true, Limit: 5, Share: 1, Hosts: []string{"a"}}}
	want.Deep.Inner = server{Port: 2, Hosts: []string{"a", "b"}}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("got %+v, want %+v", got, want)
	}
}

// TestEveryFaultIsNamed guards that bad input names the key, the place and the
// rule, and that all faults come at once.
func TestEveryFaultIsNamed(t *testing.T) {
	t.Parallel()
	err := config.Load(&settings{}, config.Source{
		Name:    "x.toml",
		File:    []byte("[server]\nprot = 1\non = 'yes'\nlimit = 1.5\nhosts = [1]\n\n[sever]\nport = 1\n"),
		Environ: []string{"TOLLGATE__SERVER__PORT=http", "TOLLGATE__SERVER__BIND=x", "TOLLGATE__SERVER__ON=1"},
	})
	for _, want := range []string{
		`x.toml:2: unknown key "server.prot" (did you mean "server.port"?)`,
		`x.toml:3: server.on: must be true or false`,
		`x.toml:4: server.limit: must be an integer`,
		`x.toml:5: server.hosts: must be a list of strings`,
		`x.toml:8: unknown key "sever.port" (did you mean "server.port"?)`,
		`environment TOLLGATE__SERVER__PORT: server.port: must be an integer`,
		`environment TOLLGATE__SERVER__BIND: unknown key "server.bind"`,
		`environment TOLLGATE__SERVER__ON: server.on: must be true or false`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("missing %q in:\n%v", want, err)
		}
	}
}

func TestValidateIsAsked(t *testing.T) {
	t.Parallel()
	err := config.Load(&settings{}, config.Source{Environ: []string{"TOLLGATE__SERVER__PORT=1"}})
	if err == nil || err.Error() != "server.port: must not be 1" {
		t.Fatalf("got %v", err)
	}
}

// TestEveryKeyMisspelt guards, for every setting there is, that a misspelling
// is refused in the file and in the environment.
func TestEveryKeyMisspelt(t *testing.T) {
	t.Parallel()
	for _, key := range config.Keys(&settings{}) {
		section, name := "", key
		if cut := strings.LastIndexByte(key, '.'); cut >= 0 {
			section, name = key[:cut], key[cut+1:]
		}
		file := fmt.Sprintf("[%s]\n%sx = 1\n", section, name)
		if section == "" {
			file = name + "x = 1\n"
		}
		if err := config.Load(&settings{}, config.Source{Name: "f", File: []byte(file)}); err == nil || !strings.Contains(err.Error(), key+"x") {
			t.Errorf("file: %s: %v", key, err)
		}
		env := "TOLLGATE__" + strings.ToUpper(strings.ReplaceAll(key, ".", "__")) + "X=1"
		if err := config.Load(&settings{}, config.Source{Environ: []string{env}}); err == nil || !strings.Contains(err.Error(), env[:len(env)-2]) {
			t.Errorf("environment: %s: %v", key, err)
		}
	}
}

func FuzzLoad(f *testing.F) {
	f.Add("[server]\nport = 1\n", "TOLLGATE__SERVER__PORT=2")
	f.Add("server = 3", "TOLLGATE__=")
	f.Add("[server.port]\nx=1", "TOLLGATE__SERVER=1")
	f.Fuzz(func(_ *testing.T, file, env string) {
		_ = config.Load(&settings{}, config.Source{Name: "f", File: []byte(file), Environ: []string{env}})
	})
}
