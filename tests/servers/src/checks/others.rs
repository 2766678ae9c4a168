//! Other instances: copies, published images, another project. One runs at a time.

use super::check::Check;
use crate::instance::launch;
use crate::run::Output;
use crate::server::Server;
use crate::world::{Seen, VM, World, has, same};

pub(super) const CHECKS: &[Check] = &[
    Check::new("others", "copy", copy),
    Check::new("others", "publish", publish),
    Check::new("others", "two_projects", two_projects),
];

fn exec(world: &World, project: &str, instance: &str, words: &[&str]) -> Result<Output, String> {
    let with = ["--project", project, "exec", instance, "-T", "--"];
    world.cli(&[&with, words].concat()).code(0)
}

/// Another instance replaces the first, then the first again.
fn instead(
    world: &World,
    make: &[&[&str]],
    look: impl FnOnce() -> Seen,
    unmake: &[&[&str]],
) -> Seen {
    let all = |commands: &[&[&str]]| -> Result<(), String> {
        for words in commands {
            world.cli(words).within(world.limit(300)).text()?;
        }
        Ok(())
    };
    world.cli(&["stop", VM]).within(world.limit(120)).text()?;
    let seen = all(make).and_then(|()| look());
    all(unmake)?;
    world.cli(&["start", VM]).within(world.limit(120)).text()?;
    world.agent_of(VM)?;
    seen
}

fn is_itself(world: &World, name: &str) -> Seen {
    let took = world.agent_of(name)?;
    let text = |words: &[&str]| -> Result<String, String> {
        Ok(exec(world, "default", name, words)?.text().trim().to_owned())
    };
    same("the host name", text(&["hostname"])?, name)?;
    has(&text(&["mote-agent", "metadata"])?, &format!("local-hostname: {name}"))?;
    Ok(format!("agent {took} s after the start"))
}

fn copy(world: &World) -> Seen {
    let make: &[&[&str]] = &[&["copy", VM, "vm2"], &["start", "vm2"]];
    instead(world, make, || is_itself(world, "vm2"), &[&["delete", "-f", "vm2"]])
}

fn publish(world: &World) -> Seen {
    let launch = launch(world, "published", "vm3");
    let launch: Vec<_> = launch.iter().map(String::as_str).collect();
    let make: &[&[&str]] = &[&["publish", VM, "--alias", "published"], &launch];
    let unmake: &[&[&str]] = &[&["delete", "-f", "vm3"], &["image", "delete", "published"]];
    instead(world, make, || is_itself(world, "vm3"), unmake)
}

/// The same name in another project, with other user-data.
fn two_projects(world: &World) -> Seen {
    // Incus refuses the same name twice on a network: there the instance has no NIC, as the project has profiles
    // of its own.
    let (off, disk): (&[&str], &[&str]) = match world.server {
        Server::Incus | Server::Incus60 => (&["-c", "features.images=false"], &["-s", "default"]),
        Server::Lxd => (&["-c", "features.images=false", "-c", "features.profiles=false"], &[]),
    };
    let create = [&["project", "create", "second"], off].concat();
    let words = launch(world, world.agent.name(), VM);
    let mut launch = vec!["--project", "second"];
    launch.extend(words.iter().map(String::as_str).chain(disk.iter().copied()));
    let make: &[&[&str]] = &[&create, &launch];
    let look = || {
        let path = format!("/1.0/instances/{VM}/state?project=second");
        let seen = || {
            let state = world.query(&path)?;
            Ok(state["processes"].as_i64().is_some_and(|count| count > 0))
        };
        let took = world.until("an agent", 120, seen)?;
        // Only now: LXD 5.0.2 refuses it while it waits for an agent.
        world.ok(&[
            "--project",
            "second",
            "config",
            "set",
            VM,
            "user.greeting=hello from there",
        ])?;
        let get = ["mote-agent", "get", "user.greeting"];
        let there = exec(world, "second", VM, &get)?.text();
        same("the greeting there", there.trim(), "hello from there")?;
        Ok(format!("agent {took} s after the start"))
    };
    let delete: &[&[&str]] =
        &[&["--project", "second", "delete", "-f", VM], &["project", "delete", "second"]];
    instead(world, make, look, delete)
}
