//! Other instances: copies, published images, another project. One runs at a time.

use super::boot;
use super::group;
use crate::instance::launch;
use crate::run::Output;
use crate::server::Server;
use crate::world::{Seen, VM, World, has, same};

group! { "others": copy, publish, two_projects }

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
    boot::stop(world, &[])?;
    let seen = all(make).and_then(|()| look());
    all(unmake)?;
    boot::start(world)?;
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
    // Incus refuses the same name twice on a network: there the instance has no NIC, as the project
    // has profiles of its own.
    let (off, disk): (&[&str], &[&str]) = match world.server {
        Server::Incus | Server::Incus60 => (&[], &["-s", "default"]),
        Server::Lxd => (&["-c", "features.profiles=false"], &[]),
    };
    let create = [&["project", "create", "second", "-c", "features.images=false"], off].concat();
    let words = launch(world, world.agent.name(), VM);
    let mut launch = vec!["--project", "second"];
    launch.extend(words.iter().map(String::as_str).chain(disk.iter().copied()));
    let make: &[&[&str]] = &[&create, &launch];
    let look = || {
        let took = world.agent_of(&format!("{VM}?project=second"))?;
        // Only now: LXD 5.0.2 refuses it while it waits for an agent.
        let greeting = "user.greeting=hello from there";
        world.ok(&["--project", "second", "config", "set", VM, greeting])?;
        let get = ["mote-agent", "get", "user.greeting"];
        let there = exec(world, "second", VM, &get)?.text();
        same("the greeting there", there.trim(), "hello from there")?;
        Ok(format!("agent {took} s after the start"))
    };
    let delete: &[&[&str]] =
        &[&["--project", "second", "delete", "-f", VM], &["project", "delete", "second"]];
    instead(world, make, look, delete)
}
