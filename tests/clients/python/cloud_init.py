"""cloud-init's own LXD data source, unchanged, on /dev/lxd/sock."""

import os
import sys

import requests

sys.path.insert(0, os.path.join(os.environ["MOTE_CLIENTS"], sys.argv[1]))

from cloudinit.sources import DataSourceLXD as lxd  # noqa: E402 (where it is has just been said)

from report import FLAVOUR, case, same  # noqa: E402


def fields(config):
    return [config.get(key) for key in ("user.foo", "user.user-data")]


def crawl():
    seen = lxd.read_metadata()
    wanted = ["bar", "#cloud-config\nhostname: tested\n"]
    return same(fields(seen["config"]), wanted) or same(seen["user-data"], wanted[1])


def slash():
    """LXD from 5.21 on answers such a path with its list; older LXD and Incus with 404.

    cloud-init uses the text after the last slash as the key.
    """
    seen = lxd.read_metadata()["config"].get("slash")
    return same(seen, '["/1.0"]\n' if FLAVOUR == "lxd" else None)


def identity():
    seen = lxd.read_metadata()["meta-data"]
    return None if "instance-id:" in seen and "local-hostname:" in seen else seen


def source():
    class Paths:
        cloud_dir = run_dir = os.environ["MOTE_TMP"]

        def get_runpath(self, _name=None):
            return self.run_dir

        def get_cpath(self, _name=None):
            return self.cloud_dir

        def get_ipath_cur(self, _name=None):
            return self.cloud_dir

    found = lxd.DataSourceLXD({}, None, Paths())
    if not found._get_data():
        return "it finds no data"
    return same(found.userdata_raw, "#cloud-config\nhostname: tested\n") or same(
        found.check_instance_id({}), True
    )


# The function has different names in the two releases.
viable = getattr(lxd, "is_platform_viable", None) or lxd.DataSourceLXD.ds_detect
case("the platform is viable", lambda: same(viable(), True))
# requests 2.32 calls a new method of its adapters, which cloud-init 22.4 lacks.
asked = "get_connection_with_tls_context"
if hasattr(requests.adapters.HTTPAdapter, asked) and asked not in vars(lxd.LXDSocketAdapter):
    print(f"all that it crawls is there: not here: it does not go with requests {requests.__version__}")
    sys.exit()
case("all that it crawls is there", crawl)
case("a key with a slash in it is as the server's own agent has it", slash)
case("the meta-data names the instance", identity)
case("the data source gets its data, and knows the instance again", source)
