"""Prints a line for each case: "NAME: ok", or what was observed instead."""

import os
import threading
import subprocess
import time

FLAVOUR = os.environ["MOTE_FLAVOUR"]
INCUS = FLAVOUR == "incus"
DEVLXD = os.environ["MOTE_DEVLXD"]


def case(name, run):
    """Runs a case, which raises an exception or returns what it observed; nothing if all is well."""
    try:
        seen = run()
    except Exception as error:  # whatever a library raises is what is seen
        seen = f"{type(error).__name__}: {error}"
    print(f"{name}: {' '.join(str(seen).split()) if seen else 'ok'}", flush=True)


def same(seen, wanted):
    """Returns how the values differ; nothing if they are equal."""
    return None if seen == wanted else f"it is {seen!r}, not {wanted!r}"


def poke(key, times=10):
    """Makes the host change a key repeatedly: the agent may not have registered the listener yet."""

    def work():
        for number in range(times):
            subprocess.run([os.environ["MOTE_POKE"], key, str(number)], stdout=subprocess.DEVNULL, check=False)
            time.sleep(0.3)

    threading.Thread(target=work, daemon=True).start()
