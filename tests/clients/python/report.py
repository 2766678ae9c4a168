"""One line for each case: "NAME: ok", or what was seen instead."""

import os
import threading
import subprocess
import time

FLAVOUR = os.environ["MOTE_FLAVOUR"]
INCUS = FLAVOUR == "incus"
DEVLXD = os.environ["MOTE_DEVLXD"]


def case(name, run):
    """Runs one; it raises, or returns what it saw if that is not as it should be."""
    try:
        seen = run()
    except Exception as error:  # whatever a library raises is what is seen
        seen = f"{type(error).__name__}: {error}"
    print(f"{name}: {' '.join(str(seen).split()) if seen else 'ok'}", flush=True)


def same(seen, wanted):
    """Nothing, or how they differ."""
    return None if seen == wanted else f"it is {seen!r}, not {wanted!r}"


def poke(key, times=10):
    """Lets the host change a key again and again: whether who listens does so yet is not known."""

    def work():
        for number in range(times):
            subprocess.run([os.environ["MOTE_POKE"], key, str(number)], stdout=subprocess.DEVNULL, check=False)
            time.sleep(0.3)

    threading.Thread(target=work, daemon=True).start()
