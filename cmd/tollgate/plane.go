package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"connectrpc.com/connect"

	"github.com/tollgate-platform/tollgate/libs/chassis/control"
	"github.com/tollgate-platform/tollgate/libs/chassis/wire"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/runtime/remote"
	adminv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/admin/v1"
	"github.com/tollgate-platform/tollgate/proto/gen/tollgate/admin/v1/adminv1connect"
)

// plane says how to reach the control plane of a running platform. An embedded
// ledger is its server's alone, so commands ask the server.
type plane struct {
	URL       string        `name:"url" default:"http://127.0.0.1:8081" placeholder:"URL" help:"The control listener of tollgate serve; of six processes, the usage service's."`
	Admin     string        `placeholder:"URL" help:"The admin service's control listener, if it is another."`
	Data      string        `default:"./data" placeholder:"DIR" help:"The folder in which serve made the operator's token."`
	TokenFile string        `placeholder:"FILE" help:"The operator's bearer token; else <data>/operator.token."`
	CAFile    string        `name:"ca-file" placeholder:"FILE" help:"Certificates to trust for https; else the system's."`
	Timeout   time.Duration `default:"30s" help:"How long one call may take, or a stream be silent."`
}

// operator is an operator's connection to the control plane.
type operator struct {
	*remote.Client

	admin   adminv1connect.AdminServiceClient
	timeout time.Duration
}

// operate makes the clients. Nothing is dialled.
func (c plane) operate() (*operator, error) {
	if c.Timeout <= 0 {
		return nil, &exitError{2, errors.New("--timeout: must be more than 0")}
	}
	if c.Admin == "" {
		c.Admin = c.URL
	}
	if c.TokenFile == "" {
		c.TokenFile = filepath.Join(c.Data, "operator.token")
	}
	o := remote.Options{Log: slog.New(slog.DiscardHandler), CallTimeout: c.Timeout}
	for _, s := range []struct {
		flag, url string
		to        *remote.Service
	}{{"--url", c.URL, &o.Usage}, {"--admin", c.Admin, &o.Admin}} {
		s.to.URL = s.url
		var err error
		if s.to.HTTP, err = control.NewClient(control.ClientOptions{URL: s.url, TokenFile: c.TokenFile, CAFile: c.CAFile}); err != nil {
			return nil, &exitError{2, fmt.Errorf("%s: %w", s.flag, err)}
		}
	}
	client, err := remote.New(o)
	if err != nil {
		return nil, &exitError{2, err}
	}
	return &operator{
		Client: client, timeout: c.Timeout,
		admin: adminv1connect.NewAdminServiceClient(o.Admin.HTTP, o.Admin.URL, connect.WithReadMaxBytes(wire.MaxMessage)),
	}, nil
}

// account finds an account by its slug or its id.
func (o *operator) account(ctx context.Context, text string) (*adminv1.Account, error) {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	req := &adminv1.GetAccountRequest{Name: &adminv1.GetAccountRequest_Slug{Slug: text}}
	if _, err := ident.Parse(text); err == nil {
		req.Name = &adminv1.GetAccountRequest_AccountId{AccountId: text}
	}
	res, err := o.admin.GetAccount(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("account %s: %w", text, said(err))
	}
	return res.GetAccount(), nil
}

// accounts gives every account to each, page by page in id order.
func (o *operator) accounts(ctx context.Context, each func(*adminv1.Account) error) error {
	cursor := ""
	for {
		res, err := o.accountPage(ctx, cursor)
		if err != nil {
			return err
		}
		for _, a := range res.GetAccounts() {
			if err := each(a); err != nil {
				return err
			}
		}
		if cursor = res.GetNextCursor(); cursor == "" {
			return nil
		}
	}
}

func (o *operator) accountPage(ctx context.Context, cursor string) (*adminv1.ListAccountsResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	res, err := o.admin.ListAccounts(ctx, &adminv1.ListAccountsRequest{Cursor: cursor})
	if err != nil {
		return nil, fmt.Errorf("list the accounts: %w", said(err))
	}
	return res, nil
}

// said makes an error of a call what the service said, or that nobody answered.
func said(err error) error {
	if f, ok := wire.Received(err); ok {
		return f
	}
	return err
}
