use super::*;
use std::fs;

fn kernel_port(root: &Path, node: &str, name: &str) {
    let directory = root.join("sys/class/virtio-ports").join(node);
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("name"), format!("{name}\n")).unwrap();
}

#[test]
fn the_newest_name_wins_and_the_dummy_is_known() {
    let root = crate::runtime::scratch::scratch("ports");
    assert_eq!(discover(&root), None);
    kernel_port(&root, "vport1p1", "org.linuxcontainers.lxd");
    let old = discover(&root).unwrap();
    assert_eq!((old.flavour, old.legacy), (Flavour::LxdOld, None));
    assert_eq!(old.path, root.join("dev/vport1p1"));
    kernel_port(&root, "vport1p2", "com.canonical.lxd");
    let new = discover(&root).unwrap();
    assert_eq!((new.flavour, new.legacy), (Flavour::Lxd, Some(root.join("dev/vport1p1"))));
    kernel_port(&root, "vport1p3", "org.linuxcontainers.incus");
    assert_eq!(discover(&root).unwrap().flavour, Flavour::Incus);
}

#[test]
fn udevs_link_is_taken_first() {
    let root = crate::runtime::scratch::scratch("links");
    kernel_port(&root, "vport1p1", "com.canonical.lxd");
    let links = root.join("dev/virtio-ports");
    fs::create_dir_all(&links).unwrap();
    fs::write(links.join("com.canonical.lxd"), "").unwrap();
    assert_eq!(discover(&root).unwrap().path, links.join("com.canonical.lxd"));
}
