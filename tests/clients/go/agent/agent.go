// Package agent connects to an agent as incusd does (internal/server/vsock), over a unix socket
// that forwards to the agent's vsock port.
package agent

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	localtls "github.com/lxc/incus/v7/shared/tls"

	"mote/report"
)

// Config returns the host's TLS configuration: its certificate for this instance, and the
// certificate that the agent must have.
func Config() *tls.Config {
	read := func(name string) string {
		text, err := os.ReadFile(report.Env(name))
		if err != nil {
			panic(err)
		}
		return string(text)
	}
	config, err := localtls.GetTLSConfigMem(
		read("MOTE_CLIENT_CRT"), read("MOTE_CLIENT_KEY"), "", read("MOTE_AGENT_CRT"), false)
	if err != nil {
		panic(err)
	}
	return config
}

// Client returns an HTTP client like that of incusd for an agent.
func Client() *http.Client {
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig: Config(),
		DialContext: func(_ context.Context, _, _ string) (net.Conn, error) {
			return net.Dial("unix", report.Env("MOTE_AGENT_SOCKET"))
		},
		DisableKeepAlives:     true,
		ExpectContinueTimeout: 30 * time.Second,
		ResponseHeaderTimeout: 3600 * time.Second,
		TLSHandshakeTimeout:   5 * time.Second,
	}}
}

// Dial opens a TLS connection to the agent.
func Dial() (*tls.Conn, error) {
	plain, err := net.Dial("unix", report.Env("MOTE_AGENT_SOCKET"))
	if err != nil {
		return nil, err
	}
	conn := tls.Client(plain, Config())
	return conn, conn.Handshake()
}

// Sftp upgrades a connection by /1.0/sftp, as the servers do.
func Sftp() (net.Conn, error) {
	conn, err := Dial()
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequest(http.MethodGet, "https://custom.socket/1.0/sftp", nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Upgrade", "sftp")
	request.Header.Set("Connection", "Upgrade")
	if err := request.Write(conn); err != nil {
		return nil, err
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), request)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusSwitchingProtocols || answer.Header.Get("Upgrade") != "sftp" {
		return nil, fmt.Errorf("%s", answer.Status)
	}
	return conn, nil
}
