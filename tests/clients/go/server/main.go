// Command server sends an agent the requests of incusd, with Incus' own client library over the
// HTTP client that incusd creates for a VM. It is also built with LXD's library, for LXD's agents.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	incus "github.com/lxc/incus/v7/client"
	"github.com/lxc/incus/v7/shared/api"

	"mote/agent"
	"mote/report"
)

// connect connects to an agent as incusd does.
func connect(skip bool) (incus.InstanceServer, error) {
	return incus.ConnectIncusHTTP(&incus.ConnectionArgs{SkipGetServer: skip}, agent.Client())
}

// with runs a case on a separate connection.
func with(name string, run func(server incus.InstanceServer) error) {
	report.Case(name, func() error {
		server, err := connect(false)
		if err != nil {
			return err
		}
		defer server.Disconnect()
		return run(server)
	})
}

func main() {
	report.Case("PUT /1.0 of no JSON is 500", tellNonsense) // Go's agents forget their host by it
	report.Case("PUT /1.0 tells where the host is", tell)
	with("GET /1.0 names the agent, and the library takes it for one", names)
	for _, name := range []string{"metrics", "resources", "container_exec_recording"} {
		with(fmt.Sprintf("the extension `%s` is listed", name), func(server incus.InstanceServer) error {
			return report.Same("listed", server.HasExtension(name), true)
		})
	}
	with("state is what the library decodes", state)
	with("metrics come in the envelope", metrics)
	with("an unknown path is not taken for an answer", unknownPath)
	with("a listener hears how a command goes on and ends", hears)
	with("an event that the host sends is heard", sent)
	report.Case("POST /1.0/events of {} is taken", emptyEvent)
	execCases()
}

func tell() error {
	server, err := connect(true)
	if err != nil {
		return err
	}
	defer server.Disconnect()
	text, err := os.ReadFile(report.Env("MOTE_AGENT_CONF"))
	if err != nil {
		return err
	}
	var told map[string]any
	if err := json.Unmarshal(text, &told); err != nil {
		return err
	}
	_, _, err = server.RawQuery("PUT", "/1.0", told, "")
	return err
}

func tellNonsense() error {
	server, err := connect(true)
	if err != nil {
		return err
	}
	defer server.Disconnect()
	_, _, err = server.RawQuery("PUT", "/1.0", "nonsense", "")
	return status(err, 500)
}

// status requires an error with this HTTP status.
func status(err error, wanted int) error {
	if err == nil {
		return errors.New("it is taken")
	}
	code, found := api.StatusErrorMatch(err)
	if !found {
		return fmt.Errorf("no status: %w", err)
	}
	return report.Same("the status", code, wanted)
}

func names(server incus.InstanceServer) error {
	info, _, err := server.GetServer()
	if err != nil {
		return err
	}
	wanted := "lxd-agent"
	if report.Incus() {
		wanted = "incus-agent"
	}
	if err := report.Same("environment.server", info.Environment.Server, wanted); err != nil {
		return err
	}
	return report.Same("api_version and auth", info.APIVersion+" "+info.Auth, "1.0 trusted")
}

func state(server incus.InstanceServer) error {
	response, _, err := server.RawQuery("GET", "/1.0/state", nil, "")
	if err != nil {
		return err
	}
	var state api.InstanceState
	if err := response.MetadataAsStruct(&state); err != nil {
		return err
	}
	if state.Processes < 1 || state.Memory.Usage < 1 {
		return fmt.Errorf("%d processes, %d bytes", state.Processes, state.Memory.Usage)
	}
	return report.Same("lo's first address", state.Network["lo"].Addresses[0].Address, "127.0.0.1")
}

func metrics(server incus.InstanceServer) error {
	response, _, err := server.RawQuery("GET", "/1.0/metrics", nil, "")
	if err != nil {
		return err
	}
	var all struct {
		Memory map[string]uint64 `json:"memory"`
		CPU    json.RawMessage   `json:"cpu_seconds_total"`
	}
	if err := response.MetadataAsStruct(&all); err != nil {
		return err
	}
	shape := "{"
	if report.Incus() {
		shape = "["
	}
	return report.Same("the shape of cpu_seconds_total", string(all.CPU[:1]), shape)
}

func unknownPath(server incus.InstanceServer) error {
	response, _, err := server.RawQuery("GET", "/1.0/unknown", nil, "")
	if report.Flavour() != "lxd" { // LXD has its list for an answer from 5.21 on
		if err == nil {
			return errors.New("it is answered")
		}
		return nil
	}
	if err != nil {
		return err
	}
	return report.Same("LXD's answer", string(response.Metadata), `["/1.0"]`)
}

func hears(server incus.InstanceServer) error {
	listener, err := server.GetEvents()
	if err != nil {
		return err
	}
	defer listener.Disconnect()
	states := make(chan string, 100)
	_, err = listener.AddHandler([]string{"operation"}, func(event api.Event) {
		var operation api.Operation
		if json.Unmarshal(event.Metadata, &operation) == nil {
			states <- operation.Status
		}
	})
	if err != nil {
		return err
	}
	if _, err := run(server, command("true")); err != nil {
		return err
	}
	for {
		select {
		case state := <-states:
			if state == "Success" {
				return nil
			}
		case <-time.After(10 * time.Second):
			return errors.New("no Success")
		}
	}
}

func sent(server incus.InstanceServer) error {
	listener, err := server.GetEvents()
	if err != nil {
		return err
	}
	defer listener.Disconnect()
	heard := make(chan string, 1)
	_, err = listener.AddHandler([]string{"config"}, func(event api.Event) { heard <- string(event.Metadata) })
	if err != nil {
		return err
	}
	content := `{"key":"user.told","old_value":"","value":"1"}`
	event := api.Event{Type: "config", Timestamp: time.Now(), Metadata: json.RawMessage(content)}
	if _, _, err := server.RawQuery("POST", "/1.0/events", &event, ""); err != nil {
		return err
	}
	select {
	case text := <-heard:
		return report.Same("the event", text, content)
	case <-time.After(10 * time.Second):
		return errors.New("nothing is heard")
	}
}

func emptyEvent() error {
	server, err := connect(true)
	if err != nil {
		return err
	}
	defer server.Disconnect()
	_, _, err = server.RawQuery("POST", "/1.0/events", map[string]any{}, "")
	return err
}
