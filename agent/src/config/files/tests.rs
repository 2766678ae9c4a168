use std::os::unix::fs::{chown, symlink};

use crate::runtime::{chmod, put, scratch};

use super::*;

fn options(root: &Path, directory: Option<&Path>) -> Options {
    let mut options = crate::options::parse([].into_iter()).unwrap();
    options.root = root.to_owned();
    options.config_dir = directory.map(Path::to_owned);
    options
}

#[test]
fn uses_a_directory_that_others_can_write_only_if_given() {
    let root = scratch("foreign");
    let directory = root.join("run/lxd_agent");
    for name in NAMES {
        put(&directory, name, name);
    }
    let find = |given| find(&options(&root, given), &mut |_, _| Ok(())).map(|files| files.from);
    let from = Ok(directory.display().to_string());
    assert_eq!(find(None), from);
    let key = directory.join("agent.key");
    for (path, right, wrong) in [(&directory, 0o755, 0o1777), (&key, 0o644, 0o664)] {
        chmod(path, wrong);
        let why = find(None).unwrap_err();
        assert!(why.contains("lxd_agent: not used: users other than root"), "{why}");
        chmod(path, right);
        if rustix::process::geteuid().is_root() {
            chown(path, Some(65_534), None).unwrap();
            assert!(find(None).is_err());
            assert_eq!(find(Some(directory.as_path())), from);
            chown(path, Some(0), None).unwrap();
        }
        assert_eq!(find(None), from);
    }
    // A directory without any of the files is not an error.
    std::fs::remove_dir_all(&directory).unwrap();
    std::fs::create_dir(&directory).unwrap();
    chmod(&directory, 0o777);
    let why = find(None).unwrap_err();
    assert!(!why.contains("other than root"), "{why}");
}

#[test]
fn reads_certificates_from_another_directory_and_optional_files() {
    let root = scratch("secrets");
    let (share, secrets) = (root.join("share"), root.join("secrets"));
    for name in ["agent.crt", "agent.key", "server.crt"] {
        put(&secrets, name, name);
    }
    let files =
        [("agent-mounts.json", "[]"), ("nics/b.json", "{}"), ("nics/a.json", "{}"), ("nics/x", "")];
    for (name, text) in files {
        put(&share, name, text);
    }
    std::fs::write(share.join("nics/long.json"), vec![b' '; 5000]).unwrap();
    // Stands for a FIFO, on which the agent would block.
    for name in ["agent.conf", "nics/c.json"] {
        symlink("/dev/null", share.join(name)).unwrap();
    }
    let mut options = options(&root, Some(&share));
    assert!(find(&options, &mut |_, _| Ok(())).is_err());
    options.secrets_dir = Some(secrets);
    let found = find(&options, &mut |place: &Path, _| {
        assert_eq!(place, share);
        Ok(())
    })
    .unwrap();
    assert_eq!((found.agent_crt.as_slice(), found.mounts), (&b"agent.crt"[..], Some(b"[]".into())));
    assert_eq!(found.agent_conf, None);
    let names: Vec<_> = found.nics.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["a.json", "b.json"]);
}
