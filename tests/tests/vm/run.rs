//! `mote-host run` with a VM: output, exit code, the end of the VM, and the cleanup.

use mote_tests::prelude::*;
use mote_tests::vm::{architecture, is_pc, kept, machine, output, run};

fn left(scratch: &Scratch) -> Vec<String> {
    let entries = scratch.0.read_dir().expect("a directory").flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("mote-run-")).collect()
}

fn result(path: &Path) -> Value {
    let text = fs::read(path).expect("a result");
    serde_json::from_slice(&text).expect("JSON")
}

#[test]
fn passes_on_only_the_commands_bytes_and_exit_code() {
    let scratch = Scratch::new();
    let (out, err, code) = output(run(&scratch.0, &[], &["seq", "1", "100000"]));
    let exact: String = (1..=100_000).map(|number| format!("{number}\n")).collect();
    assert_eq!((out == exact, err.as_str(), code), (true, "", Some(0)), "{} bytes", out.len());
    let script = "cat >/tmp/in; cmp /tmp/in /tmp/pushed/input && echo same; echo to stderr >&2; \
                  echo $GREETING; pwd; id -u; cat /mnt/share/input | wc -c; exit 37";
    let (input, file) = (scratch.0.join("dir/input"), scratch.0.join("result"));
    fs::create_dir(scratch.0.join("dir")).expect("a directory");
    let noise = noise(4_000_000);
    File::create(&input).and_then(|mut file| file.write_all(&noise)).expect("a file");
    let dir = scratch.0.join("dir").display().to_string();
    // The path may be a link, which is dereferenced.
    let link = scratch.0.join("latest");
    symlink("dir", &link).expect("a link");
    let pulled = scratch.0.join("pulled");
    let mut second = run(
        &scratch.0,
        &[
            "--push",
            &format!("{}:/tmp/pushed", link.display()),
            "--share",
            &format!("{dir}:/mnt/share:ro"),
            "--pull",
            &format!("/tmp/in:{}", pulled.display()),
            "--env",
            "GREETING=hello",
            "--cwd",
            "/tmp",
            "--user",
            "1000",
            "--result",
            &file.display().to_string(),
        ],
        &["sh", "-c", script],
    );
    second.stdin(File::open(&input).expect("a file"));
    let (out, err, code) = output(second);
    assert_eq!(out, "same\nhello\n/tmp\n1000\n4000000\n", "{err}");
    assert_eq!((err.as_str(), code), ("to stderr\n", Some(37)));
    assert_eq!(fs::read(pulled).expect("a file"), noise);
    let result = result(&file);
    assert_eq!((&result["outcome"], &result["code"]), (&"exited".into(), &37.into()), "{result}");
    assert_eq!(result["vm"]["shares"]["/mnt/share"], "virtiofs");
    assert_eq!(left(&scratch), [""; 0]);
}

#[test]
fn boots_without_pci() {
    let scratch = Scratch::new();
    // The agent loads the drivers.
    let options = ["--machine", "microvm", "--append", "mote.modules=no"];
    let script = "cat /sys/bus/virtio/devices/*/uevent | wc -l; grep -h virtio /proc/interrupts";
    let (out, err, code) = output(run(&scratch.0, &options, &["sh", "-c", script]));
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("virtio0") && !out.contains("PCI"), "{out}");
}

#[test]
fn a_panic_ends_the_run_and_shows_the_console() {
    let scratch = Scratch::new();
    let script = "echo MARK; sleep 1; echo c >/proc/sysrq-trigger; sleep 1000";
    let mut run = run(&scratch.0, &[], &["sh", "-c", script]);
    let mut child = bounded(&mut run).expect("mote-host");
    let mut out = BufReader::new(child.stdout.take().expect("its output"));
    let mut line = String::new();
    out.read_line(&mut line).expect("a line");
    let output = child.wait_with_output().expect("its end");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((line.as_str(), output.status.code()), ("MARK\n", Some(129)), "{said}");
    let first =
        "mote-host: guest panicked: \"Kernel panic - not syncing: sysrq triggered crash\"\n";
    assert!(said.starts_with(first), "{said}");
    assert_eq!(left(&scratch), [""; 0]);
}

#[test]
fn reports_a_failed_boot_immediately() {
    let scratch = Scratch::new();
    // The guest powers itself off.
    let (_, err, code) = output(run(&scratch.0, &[], &["poweroff", "-f"]));
    assert_eq!(code, Some(129), "{err}");
    let told = if machine().power_off {
        "the guest powered off the VM"
    } else {
        "QEMU ended without giving a reason"
    };
    assert!(err.starts_with(&format!("mote-host: {told}")), "{err}");
    assert_eq!(left(&scratch), [""; 0]);
}

#[test]
fn a_commands_time_limit_starts_with_it() {
    let scratch = Scratch::new();
    let file = scratch.0.join("result").display().to_string();
    let options = ["--timeout", "5", "--result", &file];
    let (out, err, code) = output(run(&scratch.0, &options, &["sh", "-c", "echo hi; sleep 1000"]));
    assert_eq!((out.as_str(), code), ("hi\n", Some(124)), "{err}");
    let ms = &result(Path::new(&file))["ms"];
    let phases = ["prepare", "boot", "start"].map(|phase| ms[phase].as_u64().expect("a phase"));
    assert!(ms["total"].as_u64().expect("all") - phases.iter().sum::<u64>() >= 5000, "{ms}");
}

#[test]
fn a_failed_fetch_or_write_fails_the_run() {
    let scratch = Scratch::new();
    let [file, junit, pulled] =
        ["result", "junit", "pulled"].map(|name| scratch.0.join(name).display().to_string());
    let pull = format!("/nowhere:{pulled}");
    let options = ["--pull", &pull, "--result", &file, "--junit", &junit];
    let (out, err, code) =
        output(run(&scratch.0, &options, &["sh", "-c", "echo '<out>'; echo err >&2"]));
    assert_eq!((out.as_str(), code), ("<out>\n", Some(125)), "{err}");
    assert!(err.starts_with("err\nmote-host: --pull /nowhere: in the guest, /nowhere: "), "{err}");
    let result = result(Path::new(&file));
    let outcome = (&result["outcome"], &result["code"]);
    assert_eq!(outcome, (&"incomplete".into(), &125.into()), "{result}");
    assert!(result["cause"].as_str().is_some_and(|cause| cause.starts_with("--pull ")), "{result}");
    let junit = fs::read_to_string(junit).expect("a report");
    assert!(junit.contains("<failure message=\"--pull /nowhere: "), "{junit}");
    contains(&junit, &["<system-out>&lt;out&gt;\n</system-out>", "<system-err>err\n</system-err>"]);
    let mut unread = run(&scratch.0, &["--result", &file], &["echo", "out"]);
    unread.stdout(File::options().write(true).open("/dev/full").expect("a full disk"));
    let (_, err, code) = output(unread);
    let why = "stdout is lost: No space left on device";
    assert_eq!((err, code), (format!("mote-host: {why}\n"), Some(125)));
    assert_eq!(self::result(Path::new(&file))["cause"], why);
}

#[test]
fn stops_starts_and_deletes_a_kept_vm() {
    let scratch = Scratch::new();
    let image = Spec::default().image;
    let directory = scratch.0.join("d");
    let host = |args: &[&str]| kept(&directory, args);
    let (kernel, initrd) = (image.join("vmlinuz"), image.join("initrd"));
    let (kernel, initrd) = (kernel.display().to_string(), initrd.display().to_string());
    let disk = scratch.0.join("disk");
    File::create(&disk).and_then(|file| file.set_len(1 << 20)).expect("a disk");
    let disk = disk.display().to_string();
    let boot = [
        "boot", "vm1", "--accel", "tcg", "--kernel", &kernel, "--initrd", &initrd, "--disk", &disk,
    ];
    let arch = architecture();
    let arch: Vec<&str> = arch.iter().map(String::as_str).collect();
    let (_, err, code) = host(&[&boot[..], &arch, &["--append", "mote.shell=console"]].concat());
    assert_eq!(code, Some(0), "{err}");
    let exec = ["exec", "vm1", "--", "echo", "here"];
    assert_eq!(host(&exec), ("here\n".into(), String::new(), Some(0)));
    assert_eq!(host(&["stop", "--force", "vm1"]).2, Some(0));
    assert!(host(&exec).1.contains("agent is not currently running"));
    let (_, err, code) = host(&["start", "vm1"]);
    assert_eq!(code, Some(0), "{err}");
    assert_eq!(host(&["wait", "vm1", "--for", "CONNECTED", "--timeout", "180"]).2, Some(0));
    assert_eq!(host(&exec).0, "here\n");
    let mark = directory.display().to_string();
    let ours = || proc::processes().filter(|(_, line)| line.contains(&mark)).count();
    assert_eq!(ours(), 3, "QEMU, vsock and the daemon");
    assert_eq!(host(&["delete", "--force", "vm1"]).2, Some(0));
    until("the end of all of them", Duration::from_secs(10), || ours() == 0);
    assert_eq!(fs::read_dir(directory.join("instances")).expect("a directory").count(), 0);
}

#[test]
fn the_linked_ring_gives_known_answers() {
    let scratch = Scratch::new();
    let pushed = format!("{}:/run/vectors", tool("MOTE_VECTORS", "target/vectors").display());
    // On a CPU with SSE4.1 (`max`), the agent does not offer ChaCha20; on others, it prefers it.
    let models: &[(&str, usize)] =
        if is_pc() { &[("max", 13), ("qemu64", 14)] } else { &[("", 14)] };
    for (model, sets) in models {
        let options = ["--push", &pushed, "--qemu-arg", &format!("-cpu {model}")];
        let options = if model.is_empty() { &options[..2] } else { &options };
        let (answers, err, code) = output(run(&scratch.0, options, &["/run/vectors"]));
        assert_eq!((err.as_str(), code), ("", Some(0)), "{answers}");
        assert_eq!(answers.lines().count(), *sets, "{answers}");
        println!("{answers}");
    }
}

// Files between `mote-host run` and an untrusted guest: what it may write, and what is copied.

/// Creates a program with mode 4755 in a directory with mode 1777, and files that cannot be copied.
fn tree(path: &Path) {
    fs::create_dir(path).expect("a directory");
    for name in ["a", "z"] {
        fs::write(path.join(name), name).expect("a file");
        fs::set_permissions(path.join(name), Permissions::from_mode(0o4755)).expect("a mode");
    }
    fs::set_permissions(path, Permissions::from_mode(0o1777)).expect("a mode");
    fifo(&path.join("p"));
}

#[test]
fn a_guest_cannot_write_to_a_share_that_it_may_only_read() {
    let scratch = Scratch::new();
    let (directory, link) = (scratch.0.join("a,b:c"), scratch.0.join("link"));
    tree(&directory);
    fs::write(directory.join("file"), "mine").expect("a file");
    symlink(&directory, &link).expect("a link");
    let script = "cat /one/file /two/file; \
        for place in /one /two; do mount -o remount,rw $place; echo remount $?; done; \
        for tag in lxd_share0 lxd_share1; do \
            mkdir /$tag; mount -t virtiofs $tag /$tag; echo mount $?; done; \
        for place in /one /two /lxd_share0 /lxd_share1; do \
            for act in 'touch new' 'rm file' 'chmod 777 file' 'mv file moved' 'truncate -s 0 file' \
                'mkdir d' 'ln file hard' 'chown 1 file' 'touch file'; do \
                (cd $place; $act) 2>/dev/null && echo \"$place: $act\"; done; \
            echo x 2>/dev/null >>$place/file && echo \"$place: written\"; done; true";
    let file = scratch.0.join("result");
    let shares = [(&directory, "one"), (&link, "two")];
    let shares = shares.map(|(path, name)| format!("{}:/{name}:ro", path.display()));
    let options =
        ["--share", &shares[0], "--share", &shares[1], "--result", file.to_str().expect("text")];
    let (out, err, code) = output(run(&scratch.0, &options, &["sh", "-c", script]));
    assert_eq!(result(&file)["vm"]["shares"]["/two"], "virtiofs", "{err}");
    // The guest may change its own mounts, so a read-only mount alone would not protect the host.
    assert_eq!(out, "minemineremount 0\nremount 0\nmount 0\nmount 0\n", "{err}");
    assert_eq!((err.as_str(), code), ("", Some(0)));
    assert_eq!(fs::read_to_string(directory.join("file")).expect("a file"), "mine");
    assert_eq!(fs::read_dir(&directory).expect("a directory").count(), 4);
}

#[test]
fn reports_a_command_that_never_ran_and_supports_a_custom_init() {
    let scratch = Scratch::new();
    let [file, junit] = ["result", "junit"].map(|name| scratch.0.join(name));
    let reports =
        ["--result", file.to_str().expect("text"), "--junit", junit.to_str().expect("text")];
    for (options, command, code, why) in [
        (&["--cwd", "/nowhere"][..], "true", 127, "the guest has no directory /nowhere"),
        (&[], "/nosuch", 127, "Command not found: /nosuch"),
        (&[], "/etc/passwd", 126, "Command not executable"),
    ] {
        let (_, err, ended) = output(run(&scratch.0, &[&reports, options].concat(), &[command]));
        assert_eq!(ended, Some(code), "{err}");
        assert!(err.starts_with(&format!("mote-host: {why}")), "{err}");
        let result = result(&file);
        assert_eq!((&result["outcome"], &result["code"]), (&"not-run".into(), &code.into()));
        assert!(result["cause"].as_str().is_some_and(|cause| cause.starts_with(why)), "{result}");
        let junit = fs::read_to_string(&junit).expect("a report");
        assert!(junit.contains(&format!("<failure message=\"{why}")), "{junit}");
    }
    let agent = agent().display().to_string();
    let append = "mote.agent=no rdinit=/bin/busybox -- sh -c \"echo mine >/ran; exec /init\"";
    let options = ["--mote", &agent, "--append", append];
    let (out, err, code) = output(run(&scratch.0, &options, &["cat", "/ran"]));
    assert_eq!((out.as_str(), err.as_str(), code), ("mine\n", "", Some(0)));
}
