use std::fs;

use super::*;
use crate::runtime::put;

fn kernel_port(root: &Path, node: &str, name: &str) {
    put(root, &format!("sys/class/virtio-ports/{node}/name"), format!("{name}\n"));
}

#[test]
fn prefers_the_newest_name_and_finds_the_dummy() {
    let root = crate::runtime::scratch("ports");
    assert_eq!(discover(&root, None), None);
    kernel_port(&root, "vport1p1", "org.linuxcontainers.lxd");
    let old = discover(&root, None).unwrap();
    assert_eq!((old.flavour, old.legacy), (Flavour::LxdOld, None));
    assert_eq!(old.path, root.join("dev/vport1p1"));
    kernel_port(&root, "vport1p2", "com.canonical.lxd");
    let new = discover(&root, None).unwrap();
    assert_eq!((new.flavour, new.legacy), (Flavour::Lxd, Some(root.join("dev/vport1p1"))));
    assert_eq!(new.doubt, None);
}

#[test]
fn warns_of_ports_of_two_servers_unless_a_flavour_is_given() {
    let root = crate::runtime::scratch("two-servers");
    kernel_port(&root, "vport1p1", "org.linuxcontainers.lxd");
    kernel_port(&root, "vport1p2", "com.canonical.lxd");
    kernel_port(&root, "vport1p3", "org.linuxcontainers.incus");
    let found = |flavour| {
        let found = discover(&root, flavour).unwrap();
        (found.flavour, found.path.file_name().unwrap().to_str().unwrap().to_owned(), found.doubt)
    };
    let (flavour, path, doubt) = found(None);
    assert_eq!((flavour, path.as_str()), (Flavour::Incus, "vport1p3"));
    assert_eq!(
        doubt.as_deref(),
        Some("ports of two servers: using Incus'; if the server is LXD, use --flavour lxd")
    );
    assert_eq!(found(Some(Flavour::Lxd)), (Flavour::Lxd, "vport1p2".into(), None));
    assert_eq!(found(Some(Flavour::Incus)), (Flavour::Incus, "vport1p3".into(), None));
    // If a newer port exists, the old one is the dummy.
    assert_eq!(found(Some(Flavour::LxdOld)).1, "vport1p3");
}

#[test]
fn prefers_udevs_link_and_returns_its_node() {
    let root = crate::runtime::scratch("links");
    kernel_port(&root, "vport1p1", "com.canonical.lxd");
    let links = root.join("dev/virtio-ports");
    fs::create_dir_all(&links).unwrap();
    put(&root, "dev/vport2p1", "");
    std::os::unix::fs::symlink("../vport2p1", links.join("com.canonical.lxd")).unwrap();
    assert_eq!(discover(&root, None).unwrap().path, root.join("dev/vport2p1"));
    // Even a link to another place leads to the port.
    fs::rename(root.join("dev/vport2p1"), root.join("elsewhere")).unwrap();
    fs::remove_file(links.join("com.canonical.lxd")).unwrap();
    std::os::unix::fs::symlink(root.join("elsewhere"), links.join("com.canonical.lxd")).unwrap();
    assert_eq!(discover(&root, None).unwrap().path, links.join("com.canonical.lxd"));
}
