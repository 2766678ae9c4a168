"""requests over unix sockets."""

import concurrent.futures
from urllib.parse import quote

import requests
import requests_unixsocket

from report import DEVLXD, case, same

BASE = f"http+unix://{quote(DEVLXD, safe='')}"


def get(path, session=None):
    return (session or requests_unixsocket.Session()).get(BASE + path, timeout=20)


def kept():
    session = requests_unixsocket.Session()
    return same([get("/1.0/config/user.foo", session).text for _ in range(20)], ["bar"] * 20)


def crowd():
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        seen = list(pool.map(lambda _: get("/1.0/config/user.foo").text, range(60)))
    return same(seen, ["bar"] * 60)


def patch(data):
    return requests_unixsocket.Session().patch(BASE + "/1.0", data=data, timeout=20).status_code


def chunks():
    yield b'{"state":'
    yield b'"Started"}'


def stream():
    answer = requests_unixsocket.Session().get(BASE + "/1.0/events", stream=True, timeout=5)
    return same(answer.status_code, 200)


case("a key", lambda: same(get("/1.0/config/user.foo").text, "bar"))
case("the list of keys is JSON", lambda: same("/1.0/config/user.foo" in get("/1.0/config").json(), True))
case("20 keys on one connection", kept)
case("60 keys by 20 threads", crowd)
case("PATCH Ready", lambda: same(patch('{"state":"Ready"}'), 200))
case("PATCH in chunks", lambda: same(patch(chunks()), 200))
case("the stream of events opens", stream)
case("what is not there is an error to requests", lambda: same(get("/1.0/config/user.none").status_code, requests.codes.not_found))
