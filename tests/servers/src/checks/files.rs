//! Files of the instance.

use crate::prelude::*;

group! {
    "files":
    push_pull, push_from_pipe, push_recursive, pull_recursive, create [is_incus], edit, delete, delete_full_directory, pull_missing, rest, mount, mount_many_open
}

/// Files that are open at the same time on a mount: more than 128, a former limit of mote's.
const OPEN: usize = 150;

fn at(path: &str) -> String {
    format!("{VM}{path}")
}

fn push_pull(world: &World) -> Seen {
    let data = noise(BIG << 20);
    put("/tmp/there", &data)?;
    let (path, modes) = ("/tmp/a b \u{e9}", ["--mode", "0640", "--uid", "1000", "--gid", "1000"]);
    let begun = Instant::now();
    world.ok(&[&["file", "push", "-q", "/tmp/there", &at(path)], &modes[..]].concat())?;
    let push = round(begun.elapsed());
    let stat = world.sh(&format!("stat -c '%a %u %g %s' '{path}'"))?;
    same("mode, owner, size", stat.trim(), format!("640 1000 1000 {}", data.len()))?;
    let begun = Instant::now();
    world.ok(&["file", "pull", "-q", &at(path), "/tmp/back"])?;
    let pull = round(begun.elapsed());
    same("it came back unchanged", read("/tmp/back")? == data, true)?;
    world.sh(&format!("rm '{path}'"))?;
    Ok(format!("{BIG} MiB: push {push} s, pull {pull} s"))
}

fn push_from_pipe(world: &World) -> Seen {
    world.cli(&["file", "push", "-", "-p", &at("/tmp/x/y/z")]).input(*b"piped\n").text()?;
    same("the file", world.sh("cat /tmp/x/y/z")?, "piped\n")?;
    same("to a pipe", world.ok(&["file", "pull", &at("/tmp/x/y/z"), "-"])?, "piped\n")?;
    Ok(String::new())
}

/// Removes the previous tree; creates 40 files, an empty file, a link, and a file with a mode.
fn tree(path: &str) -> Try {
    let make = || -> std::io::Result<()> {
        let _new = fs::remove_dir_all(path);
        let deep = Path::new(path).join("d/e");
        fs::create_dir_all(&deep)?;
        for number in 1..=40 {
            fs::write(Path::new(path).join(format!("d/{number}")), format!("{number}\n"))?;
        }
        fs::write(deep.join("empty"), "")?;
        fs::set_permissions(&deep, fs::Permissions::from_mode(0o751))?;
        symlink("d/1", Path::new(path).join("link"))
    };
    make().map_err(|error| format!("a tree: {error}"))
}

fn push_recursive(world: &World) -> Seen {
    tree("/tmp/tree")?;
    world.sh("rm -rf /tmp/tree")?;
    world.ok(&["file", "push", "-q", "-r", "/tmp/tree", &at("/tmp/")])?;
    same("files", world.sh("find /tmp/tree -type f | wc -l")?.trim(), "41")?;
    let odd = world.sh("readlink /tmp/tree/link; stat -c %a /tmp/tree/d/e; cat /tmp/tree/d/7")?;
    same("link, mode, a file", odd.split_whitespace().collect::<Vec<_>>(), ["d/1", "751", "7"])?;
    Ok("41 files, a link".into())
}

fn pull_recursive(world: &World) -> Seen {
    tree("/tmp/tree")?;
    let _new = fs::remove_dir_all("/tmp/tree.back");
    fs::create_dir_all("/tmp/tree.back").map_err(|error| error.to_string())?;
    world.sh("rm -rf /tmp/tree")?;
    world.ok(&["file", "push", "-q", "-r", "/tmp/tree", &at("/tmp/")])?;
    world.ok(&["file", "pull", "-q", "-r", &at("/tmp/tree"), "/tmp/tree.back"])?;
    if world.server == Server::Lxd {
        // LXD 5.0.2 returns an absolute path for a link, whatever the link contains.
        let link = Path::new("/tmp/tree.back/tree/link");
        let target = fs::read_link(link).map_err(|error| error.to_string())?;
        same("the link", target, Path::new("/tmp/tree/d/1").to_path_buf())?;
        fs::remove_file(link).and_then(|()| symlink("d/1", link)).map_err(|e| e.to_string())?;
    }
    world.run(&["diff", "-r", "--no-dereference", "/tmp/tree", "/tmp/tree.back/tree"]).code(0)?;
    Ok("the same tree came back".into())
}

fn create(world: &World) -> Seen {
    world.sh("rm -rf /tmp/empty /tmp/newdir /tmp/newlink")?;
    world.ok(&["file", "create", &at("/tmp/empty"), "--mode", "0600"])?;
    world.ok(&["file", "create", "--type=directory", &at("/tmp/newdir")])?;
    world.ok(&["file", "create", "--type=symlink", &at("/tmp/newlink"), "/tmp/empty"])?;
    let seen = world.sh("stat -c '%F %a' /tmp/empty /tmp/newdir; readlink /tmp/newlink")?;
    same("what was made", seen, "regular empty file 600\ndirectory 755\n/tmp/empty\n")?;
    Ok("file, directory, link".into())
}

fn edit(world: &World) -> Seen {
    put("/tmp/editor", b"#!/bin/sh\necho edited >>\"$1\"\n")?;
    world.run(&["chmod", "755", "/tmp/editor"]).code(0)?;
    world.sh("echo one >/tmp/edit.me")?;
    // The client starts an editor only on a terminal.
    let file = at("/tmp/edit.me");
    let words = ["env", "EDITOR=/tmp/editor", world.server.cli(), "file", "edit", &file];
    let terminal = Terminal::start(&words, 80, 24, world.limit(60))?;
    same("the exit code", terminal.end()?.0, 0)?;
    same("the file", world.sh("cat /tmp/edit.me")?, "one\nedited\n")?;
    Ok(String::new())
}

fn delete(world: &World) -> Seen {
    world.sh("echo >/tmp/gone; mkdir -p /tmp/gone.d")?;
    world.ok(&["file", "delete", &at("/tmp/gone")])?;
    world.ok(&["file", "delete", &at("/tmp/gone.d")])?;
    same("what is left", world.sh("ls -d /tmp/gone /tmp/gone.d 2>/dev/null || true")?, "")?;
    let again = world.cli(&["file", "delete", &at("/tmp/gone")]).code(1)?;
    Ok(format!("once more: {}", again.said()))
}

fn delete_full_directory(world: &World) -> Seen {
    world.sh("rm -rf /tmp/full; mkdir -p /tmp/full/a; echo >/tmp/full/a/b")?;
    let refused = world.cli(&["file", "delete", &at("/tmp/full")]).run()?;
    same("it is refused", refused.code != 0, true)?;
    same("what is left", world.sh("ls /tmp/full/a")?.trim(), "b")?;
    let force = world.cli(&["file", "delete", "-f", &at("/tmp/full")]).run()?;
    let left = world.sh("ls -d /tmp/full 2>/dev/null || true")?;
    Ok(format!("{}; -f: {} {}; left: {left:?}", refused.said(), force.code, force.said()))
}

fn pull_missing(world: &World) -> Seen {
    let said = world.cli(&["file", "pull", &at("/nosuch"), "-"]).code(1)?.said();
    let lower = said.to_lowercase();
    let fits = ["not found", "no such file", "not exist"].iter().any(|text| lower.contains(text));
    same("it says what is wrong", (fits, &said), (true, &said))?;
    Ok(said)
}

fn rest(world: &World) -> Seen {
    let header = |key: &str, value: &str| format!("X-{}-{key}: {value}", world.server.service());
    let url = |path: &str| format!("http://x/1.0/instances/{VM}/files?path={path}");
    let text = world.curl(&[&url("/etc/passwd")]).text()?;
    for wanted in [&header("type", "file"), &header("mode", "0644"), "root:x:0"] {
        has(&text.to_lowercase(), &wanted.to_lowercase())?;
    }
    let text = world.curl(&[&url("/etc")]).text()?;
    has(&text.to_lowercase(), &header("type", "directory").to_lowercase())?;
    has(&text, "hostname")?;
    has(&world.curl(&["-I", &url("/etc/passwd")]).text()?, "200 OK")?;
    let kind = header("type", "file");
    let post = |more: &[&str], data: &str| {
        let octets = "Content-Type: application/octet-stream";
        let words = ["-X", "POST", "-H", &kind, "-H", octets, "--data-binary", data];
        world.curl(&[&words, more, &[&url("/tmp/app")]].concat()).text()
    };
    has(&post(&[], "more")?, "\"status_code\":200")?;
    post(&["-H", &header("write", "append")], " still")?;
    same("the file", world.sh("cat /tmp/app")?, "more still")?;
    has(&world.curl(&["-X", "DELETE", &url("/tmp/nothere")]).text()?, "404")?;
    Ok("GET, HEAD, POST, append, DELETE".into())
}

fn mounted(world: &World, path: &str, look: impl FnOnce(&Path) -> Try<String>) -> Seen {
    let here = Path::new("/mnt/sftp");
    fs::create_dir_all(here).map_err(|error| error.to_string())?;
    let mount = world.cli(&["file", "mount", &at(path), "/mnt/sftp"]).start()?;
    let seen =
        world.until("mounted", 30, || Ok(here.join("seen").exists())).and_then(|_| look(here));
    let unmounted = world.run(&["umount", "/mnt/sftp"]).code(0);
    let _over = mount.signal("-TERM");
    unmounted?;
    seen
}

fn mount(world: &World) -> Seen {
    world.sh("rm -rf /tmp/m; mkdir -p /tmp/m; echo seen >/tmp/m/seen")?;
    let data = noise(2 << 20);
    let work = |here: &Path| -> Try<String> {
        let work = || -> std::io::Result<Vec<String>> {
            fs::write(here.join("w"), &data)?;
            fs::create_dir(here.join("d"))?;
            fs::rename(here.join("w"), here.join("d/w"))?;
            symlink("seen", here.join("link"))?;
            fs::set_permissions(here.join("seen"), fs::Permissions::from_mode(0o600))?;
            let entries = fs::read_dir(here)?;
            let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
            names.collect()
        };
        let mut names = work().map_err(|error| format!("on the mount: {error}"))?;
        names.sort();
        same("names", names, ["d", "link", "seen"])?;
        let inside = world.exec(&["sha256sum", "/tmp/m/d/w"]).code(0)?;
        same("the checksum", first_word(&inside)?, checksum(&data)?)?;
        let odd = world.sh("stat -c %a /tmp/m/seen; readlink /tmp/m/link")?;
        same("mode and link", odd, "600\nseen\n")?;
        Ok("written, renamed, linked, listed".into())
    };
    mounted(world, "/tmp/m", work)
}

fn mount_many_open(world: &World) -> Seen {
    let make = format!(
        "rm -rf /tmp/many; mkdir /tmp/many; cd /tmp/many; echo >seen; for i in $(seq {OPEN}); do echo $i >$i; done"
    );
    world.sh(&make)?;
    let work = |here: &Path| -> Try<String> {
        let open = |number: usize| File::open(here.join(number.to_string()));
        let open: Vec<_> = (1..=OPEN)
            .map(open)
            .collect::<Result<_, _>>()
            .map_err(|error| format!("with many files open: {error}"))?;
        let last = open.last().ok_or("none")?;
        let text = std::io::read_to_string(last).map_err(|error| error.to_string())?;
        same("the last one", text.trim(), OPEN.to_string())?;
        Ok(format!("{OPEN} files open at once"))
    };
    mounted(world, "/tmp/many", work)
}
