"""pylxd with an agent instead of a server: both have the same API at its root."""

import os
import warnings

import pylxd

from report import INCUS, case, same

warnings.simplefilter("ignore")  # the name in the agent's certificate is nobody's
PAIR = (os.environ["MOTE_CLIENT_CRT"], os.environ["MOTE_CLIENT_KEY"])


def client():
    return pylxd.Client(endpoint=f"https://{os.environ['MOTE_AGENT_TCP']}", cert=PAIR, verify=False)


def trusted():
    return same(client().trusted, True) or same(
        client().host_info["environment"]["server"], "incus-agent" if INCUS else "lxd-agent"
    )


def state():
    seen = client().api.state.get().json()["metadata"]
    return None if seen["processes"] > 0 and "lo" in seen["network"] else seen


def extension():
    return same(client().has_api_extension("metrics"), True)


def missing():
    try:
        client().api.operations["none"].get()
    except pylxd.exceptions.NotFound:
        return None
    except pylxd.exceptions.LXDAPIException as error:
        return same(error.response.status_code, 500)
    return "it is found"


def events():
    listener = client().events(event_types={pylxd.EventType.Operation})
    listener.connect()
    listener.close()


case("the client is trusted, and is told that this is an agent", trusted)
case("state", state)
case("the extension `metrics` is there", extension)
case("operations are listed", lambda: same(client().api.operations.get().status_code, 200))
case("an operation that there is not is an error", missing)
case("events open and close", events)
