//! The instance under test, and others like it.

use std::time::{Duration, Instant};

use crate::report::{Say, step};
use crate::world::{BOOTING, VM, World};

/// Interval of the messages while waiting for an agent.
const TELL: Duration = Duration::from_secs(60);
/// Directory with the second disk's files.
const FILES: &str = "/run/checks";

/// Returns the arguments that launch an instance from an image: one CPU, memory for an initramfs,
/// and what QEMU boots.
pub fn launch(world: &World, image: &str, instance: &str) -> Vec<String> {
    let words = "console=tty0 console=ttyS0 panic=5 loglevel=5 random.trust_cpu=on \
        mitigations=off no_timer_check cryptomgr.notests";
    let initrd = format!("{FILES}/{}.initrd", world.agent.name());
    // Loading a NIC's boot ROM would only take time.
    let roms = "-global driver=virtio-net-pci,property=romfile,value=";
    let boot =
        format!("raw.qemu=-kernel {FILES}/linux -initrd {initrd} -append \"{words}\" {roms}");
    let first = ["launch", "-q", image, instance, "--vm", "-c", "security.secureboot=false"];
    let fresh = ["-c", "limits.cpu=1", "-c", "limits.memory=384MiB", "-c", &boot];
    let config = ["-c", "agent.nic_config=true", "-c", "user.greeting=hello"];
    let words = [&first[..], &fresh, &config].concat();
    words.into_iter().map(str::to_owned).collect()
}

/// Imports the image and starts the instance, until its agent is connected.
pub fn start(world: &World, image: &str, say: Say<'_>) -> Result<(), String> {
    let import = ["image", "import", image, "--alias", world.agent.name()];
    world.cli(&import).within(world.limit(180)).text()?;
    let launch = launch(world, world.agent.name(), VM);
    let words: Vec<_> = launch.iter().map(String::as_str).collect();
    say(step("the image is there; launching"))?;
    world.cli(&words).within(world.limit(300)).text()?;
    say(step("launched; waiting for the agent"))?;
    let mut told = Instant::now();
    world.until_each(BOOTING * world.slow, "an agent", 240, || {
        let seen = world.sees_agent(VM)?;
        if told.elapsed() > TELL {
            told = Instant::now();
            say(step(&format!("no agent yet; the instance is {}", world.status()?)))?;
        }
        Ok(seen)
    })?;
    say(step("the agent is there"))
}
