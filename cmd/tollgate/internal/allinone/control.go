package allinone

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/tollgate-platform/tollgate/libs/chassis/control"
	"github.com/tollgate-platform/tollgate/libs/chassis/identity"
	"github.com/tollgate-platform/tollgate/libs/chassis/run"
)

// The token files that a first start makes under the data folder.
const (
	operatorToken = "operator.token"
	instanceToken = "instance.token"
)

// identities opens who may call the control listener: those of the manifest, or
// one operator and one instance whose tokens the first start makes.
func identities(o Options) (*identity.Registry, error) {
	c := o.Config.Control.Under(o.ConfigDir)
	opts := identity.Options{Manifest: c.IdentitiesPath, Every: c.ReloadEvery(), Log: o.Log}
	if opts.Manifest == "" {
		opts.Bearers = []identity.Bearer{
			{Identity: "operator", Role: identity.Operator, TokenFile: filepath.Join(o.DataDir, operatorToken)},
			{Identity: "instance", Role: identity.Instance, TokenFile: filepath.Join(o.DataDir, instanceToken)},
		}
		for _, b := range opts.Bearers {
			if err := identity.EnsureToken(b.TokenFile); err != nil {
				return nil, fmt.Errorf("--data %s: %w", o.DataDir, err)
			}
		}
	}
	who, err := identity.Open(opts)
	if err != nil && opts.Manifest != "" {
		return nil, fmt.Errorf("control.identities_path: %w", err)
	}
	return who, err
}

// controlled says whether the server has a control listener.
func (o Options) controlled() bool { return o.Config.Control.Port != 0 || o.ControlListen != "" }

// wireControl makes the control plane's handler of every component that is
// wired, and gives the component that keeps its identities current.
func (s *Server) wireControl(components []run.Component) (run.Component, error) {
	who, err := identities(s.opts)
	if err != nil {
		return run.Component{}, err
	}
	if s.handler, err = control.NewHandler(components, who, s.Ready, s.opts.Log); err != nil {
		return run.Component{}, err
	}
	return run.Component{Name: "identities", Workers: []run.Worker{who.Watch}}, nil
}

// listenControl opens the control listener.
func (s *Server) listenControl(ctx context.Context) (err error) {
	s.control, err = control.Listen(ctx, s.opts.Config.Control.Under(s.opts.ConfigDir), s.opts.ControlListen, s.opts.Log)
	if err != nil {
		return err
	}
	server := control.NewServer(s.handler, s.opts.Log)
	server.Addr = s.control.Addr().String()
	s.serveOn(s.control, server)
	return nil
}

// ControlURL is the control listener's address, or "" without one.
func (s *Server) ControlURL() string {
	if s.control == nil {
		return ""
	}
	if s.opts.Config.Control.TLSCertificate != "" {
		return "https://" + s.control.Addr().String()
	}
	return "http://" + s.control.Addr().String()
}
