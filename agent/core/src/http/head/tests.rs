use super::*;

fn refused(head: &str) -> HeadError {
    request(head.as_bytes()).expect_err(head)
}

/// Describes a request in text. The fuzz target `head` cuts heads and appends input.
fn described(head: &str) -> String {
    let (it, length) = request(head.as_bytes()).unwrap().expect(head);
    assert_eq!(length, head.len(), "{head:?}");
    let headers: Vec<_> = it.headers.iter().map(|(k, v)| (k, v.to_vec())).collect();
    format!("{} {} {:?} {:?} {headers:?}", it.method_text, it.path, it.query, it.framing)
}

#[test]
fn parses_heads() {
    assert_eq!(
        described("GET /1.0?a=b?c HTTP/1.1\r\nHost: lxd\r\nConnection: x, Close\r\n\r\n"),
        "GET /1.0 Some(\"a=b?c\") None [(\"Host\", [108, 120, 100]), \
         (\"Connection\", [120, 44, 32, 67, 108, 111, 115, 101])]"
    );
    assert_eq!(
        described("PUT / HTTP/1.1\r\nHost:\r\nContent-Length: 17\r\n\r\n"),
        "PUT / None Length(17) [(\"Host\", []), (\"Content-Length\", [49, 55])]"
    );
    // An empty line before a request is skipped (RFC 9112 §2.2).
    assert_eq!(described("\r\nGET / HTTP/1.0\r\n\r\n"), "GET / None None []");
    let chunked = "POST / HTTP/1.1\r\nHost: h\r\ntransfer-encoding:CHUNKED \r\n\r\n";
    assert!(described(chunked).contains("Chunked"));
    // The same length twice is accepted.
    let same = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\ncontent-length: 03\r\n\r\n";
    assert!(described(same).contains("Length(3)"));
}

#[test]
fn distinguishes_methods_and_keeps_unknown_ones() {
    for text in "GET HEAD POST PUT PATCH DELETE OPTIONS get BREW".split(' ') {
        let head = format!("{text} / HTTP/1.1\r\nHost: h\r\n\r\n");
        let (request, _) = request(head.as_bytes()).unwrap().unwrap();
        let name = format!("{:?}", request.method).to_uppercase();
        let expected = if matches!(text, "get" | "BREW") { "OTHER" } else { text };
        assert_eq!((request.method_text, &*name), (text, expected));
    }
}

#[test]
fn rejects_ambiguous_framing() {
    // A slash stands for the end of a line.
    let all = "Content-Length: 3/Transfer-Encoding: chunked | \
         Transfer-Encoding: chunked/Content-Length: 3 | \
         Transfer-Encoding: chunked/Content-Length: 0 | Content-Length: 3/Content-Length: 4 | \
         Content-Length: 0/Content-Length: 4 | Content-Length: +5 | Content-Length: 3, 3 | \
         Content-Length: -0 | Content-Length: 0x3 | Content-Length: 3 3 | \
         Content-Length: 18446744073709551616 | Content-Length: | Transfer-Encoding: | \
         Transfer-Encoding: identity | Transfer-Encoding: gzip, chunked | \
         Transfer-Encoding: chunked, chunked | \
         Transfer-Encoding: chunked/Transfer-Encoding: chunked | Transfer-Encoding: xchunked | \
         Transfer-Encoding: chunked;q=1";
    for (fields, end) in all.split(" | ").flat_map(|fields| [(fields, "\r\n"), (fields, "\n")]) {
        let fields = fields.replace('/', end);
        let head = format!("POST / HTTP/1.1{end}{fields}{end}{end}");
        assert_eq!(refused(&head), HeadError::BadFraming, "{fields}");
        let head = format!("HTTP/1.1 200 OK{end}{fields}{end}{end}");
        let error = response(head.as_bytes(), Method::Get).expect_err(&fields);
        assert_eq!(error, HeadError::BadFraming, "{fields}");
    }
    let chunked = "Transfer-Encoding: chunked\r\n\r\n";
    assert_eq!(refused(&format!("POST / HTTP/1.0\r\n{chunked}")), HeadError::BadFraming);
    let head = format!("HTTP/1.0 200 OK\r\n{chunked}");
    assert_eq!(response(head.as_bytes(), Method::Get).err(), Some(HeadError::BadFraming));
}

#[test]
fn rejects_folded_and_invalid_heads() {
    for head in [
        "GET / HTTP/1.1\r\nA: b\r\n folded\r\n\r\n",
        "GET / HTTP/1.1\r\nA: b\r\n\tfolded\r\n\r\n",
        "GET / HTTP/1.1\r\n A: b\r\n\r\n",
        "GET / HTTP/1.1\r\nA : b\r\n\r\n",
        "GET / HTTP/1.1\r\nA\r\n\r\n",
        "GET / HTTP/1.1\r\n: b\r\n\r\n",
        "GET / HTTP/1.1\r\nA: b\rc\r\n\r\n",
        "GET / HTTP/1.1\r\nA: b\0c\r\n\r\n",
        "GET  / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1 \r\n\r\n",
        "GET nothing HTTP/1.1\r\n\r\n",
        "GET * HTTP/1.1\r\n\r\n",
        "CONNECT lxd:443 HTTP/1.1\r\n\r\n",
        "GET ?://lxd/x HTTP/1.1\r\n\r\n",
        "GET ://lxd/x HTTP/1.1\r\n\r\n",
        "G\0T / HTTP/1.1\r\n\r\n",
        "\u{16}\u{3}\u{1}\0",
    ] {
        assert_eq!(refused(head), HeadError::Malformed, "{head:?}");
    }
    for version in ["HTTP/2.0", "HTTP/1.2", "HTTP/0.9"] {
        assert_eq!(refused(&format!("GET / {version}\r\n\r\n")), HeadError::BadVersion);
    }
}

#[test]
fn a_line_of_a_head_may_end_in_a_bare_line_feed() {
    let said = "GET /1.0 None None [(\"Host\", [108])]";
    for head in [
        "GET /1.0 HTTP/1.1\nHost: l\n\n",
        "GET /1.0 HTTP/1.1\r\nHost: l\n\r\n",
        "GET /1.0 HTTP/1.1\nHost: l\r\n\r\n",
        "GET /1.0 HTTP/1.1\r\nHost: l\r\n\n",
        "\nGET /1.0 HTTP/1.1\r\nHost: l\r\n\r\n",
    ] {
        assert_eq!(described(head), said, "{head:?}");
    }
    // Bytes after the head are not checked.
    assert!(request(b"GET / HTTP/1.0\r\n\r\n\n\n").unwrap().is_some());
    // The head of the Go agents' event stream.
    let stream = b"HTTP/1.1 200 OK\nConnection: keep-alive\nContent-Type: application/json\n\n{";
    let (response, length) = response(stream, Method::Get).unwrap().unwrap();
    assert_eq!((response.status, response.framing), (200, Framing::UntilClose));
    assert_eq!(stream.get(length..), Some(&b"{"[..]));
}

#[test]
fn bare_line_feeds_cannot_hide_headers() {
    for fields in [
        "Content-Length: 3\n 4",
        "Content-Length:\n 4",
        "A: b\n\tTransfer-Encoding: chunked",
        "Content-Length : 3",
        "Transfer-Encoding\n: chunked",
        "A: b\rContent-Length: 3",
        "A: b\r\rContent-Length: 3",
        "A: b\r\r",
    ] {
        let head = format!("POST / HTTP/1.1\nHost: h\n{fields}\n\n");
        assert_eq!(refused(&head), HeadError::Malformed, "{head:?}");
        let head = format!("HTTP/1.1 200 OK\n{fields}\n\n");
        assert_eq!(response(head.as_bytes(), Method::Get).err(), Some(HeadError::Malformed));
    }
    // A carriage return alone ends neither a line nor the head.
    for head in ["GET / HTTP/1.1\rHost: h\r\r", "GET / HTTP/1.1\nHost: h\n\rX"] {
        assert_eq!(refused(head), HeadError::Malformed, "{head:?}");
    }
}

#[test]
fn http11_has_one_valid_host_and_http10_may_lack_it() {
    for host in ["", "lxd", "unix.socket", "custom.socket:8443", "[::1]:80", "a%20b", "a_b~c"] {
        for version in ["1.0", "1.1"] {
            let head = format!("GET / HTTP/{version}\r\nhOST:{host} \r\n\r\n");
            assert!(request(head.as_bytes()).unwrap().is_some(), "{head:?}");
        }
    }
    for fields in
        ["Host: a\r\nHost: a", "Host: a\r\nA: b\r\nhost:", "Host: a b", "Host: a/b", "Host: \u{e4}"]
    {
        for version in ["1.0", "1.1"] {
            let head = format!("GET / HTTP/{version}\r\n{fields}\r\n\r\n");
            assert_eq!(refused(&head), HeadError::BadHost, "{head:?}");
        }
    }
    assert_eq!(refused("GET / HTTP/1.1\r\nA: b\r\n\r\n"), HeadError::BadHost);
    assert_eq!(refused("GET http://lxd/ HTTP/1.1\r\n\r\n"), HeadError::BadHost);
    assert!(request(b"GET / HTTP/1.0\r\nA: b\r\n\r\n").unwrap().is_some());
}

#[test]
fn limits_the_number_of_headers() {
    let head = |count| format!("GET / HTTP/1.1\r\nHost: h\r\n{}\r\n", "A: b\r\n".repeat(count - 1));
    for count in [limits::HEADERS - 1, limits::HEADERS] {
        let (request, _) = request(head(count).as_bytes())
            .unwrap()
            .map(|it| (it.0.headers.iter().count(), it.1))
            .unwrap();
        assert_eq!(request, count);
    }
    assert_eq!(refused(&head(limits::HEADERS + 1)), HeadError::TooManyHeaders);
}

#[test]
fn limits_the_length_of_a_head() {
    let head = |length: usize| {
        let empty = "GET / HTTP/1.1\r\nHost: h\r\n\r\n".len();
        format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "x".repeat(length - empty))
    };
    for length in [limits::HEAD - 1, limits::HEAD] {
        assert_eq!(request(head(length).as_bytes()).unwrap().unwrap().1, length);
        assert!(request(&head(length).as_bytes()[..length - 1]).unwrap().is_none());
    }
    let long = head(limits::HEAD + 1);
    assert_eq!(refused(&long), HeadError::TooLong);
    assert_eq!(request(&long.as_bytes()[..limits::HEAD]).err(), Some(HeadError::TooLong));
    assert!(request(&long.as_bytes()[..limits::HEAD - 1]).unwrap().is_none());
}

#[test]
fn absolute_form_is_reduced_to_its_path() {
    for (target, path, query) in [
        ("http://lxd/1.0", "/1.0", None),
        ("http://lxd/1.0?a", "/1.0", Some("a")),
        ("http://lxd", "/", None),
        ("http://lxd?a=b", "/", Some("a=b")),
        ("/a://b", "/a://b", None),
        ("/?u=http://x/y", "/", Some("u=http://x/y")),
        ("//lxd/1.0", "//lxd/1.0", None),
        ("/%2e%2E/", "/%2e%2E/", None),
        ("/?", "/", Some("")),
    ] {
        let head = format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n");
        let (request, _) = request(head.as_bytes()).unwrap().unwrap();
        assert_eq!((request.path, request.query), (path, query), "{target}");
    }
}

#[test]
fn only_http11_waits_for_continue() {
    let expects = |version: &str, value: &str| {
        let head = format!("PUT / HTTP/{version}\r\nHost: h\r\nExpect: {value}\r\n\r\n");
        request(head.as_bytes()).unwrap().unwrap().0.expect_continue
    };
    assert!(expects("1.1", "100-Continue"));
    assert!(!expects("1.0", "100-continue"));
    assert!(!expects("1.1", "200-ok"));
}

#[test]
fn finds_headers_in_any_case_and_returns_the_first() {
    let head = b"GET / HTTP/1.1\r\nHost: h\r\nETag: \xff\r\netag: b\r\nEmpty:\r\nL: a,, b\r\n\r\n";
    let (request, _) = request(head).unwrap().unwrap();
    assert_eq!(request.headers.get("etag"), Some(&b"\xff"[..]));
    assert_eq!(request.headers.get("EMPTY"), Some(&b""[..]));
    assert_eq!(request.headers.get("eta"), None);
    assert!(request.headers.has_token("l", "B") && !request.headers.has_token("l", "a, b"));
}

#[test]
fn a_response_shows_where_its_body_ends() {
    for (head, to, framing, keep_alive) in [
        ("HTTP/1.1 200 OK\r\n\r\n", Method::Get, Framing::UntilClose, false),
        ("HTTP/1.1 200 OK\r\n\r\n", Method::Head, Framing::None, true),
        ("HTTP/1.1 100 Continue\r\n\r\n", Method::Put, Framing::None, true),
        ("HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\n\r\n", Method::Get, Framing::None, true),
        ("HTTP/1.1 204 \r\nContent-Length: 5\r\n\r\n", Method::Get, Framing::None, true),
        ("HTTP/1.1 304\r\n\r\n", Method::Get, Framing::None, true),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", Method::Get, Framing::Length(5), true),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", Method::Head, Framing::None, true),
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", Method::Get, Framing::None, true),
        (
            "HTTP/1.1 200 A\r\nTransfer-Encoding: chunked\r\n\r\n",
            Method::Get,
            Framing::Chunked,
            true,
        ),
        ("HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n", Method::Get, Framing::Length(5), false),
    ] {
        let (read, length) = response(head.as_bytes(), to).unwrap().unwrap();
        assert_eq!((read.framing, read.keep_alive), (framing, keep_alive), "{head:?}");
        assert_eq!(length, head.len());
    }
}
