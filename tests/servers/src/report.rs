//! The half that runs in the outer VM: runs the checks, and sends a line for each step.

use crate::prelude::*;

pub fn check(world: &World, wanted: &[String]) -> Try<ExitCode> {
    let mut port = File::options().write(true).open(PORT).map_err(|e| format!("{PORT}: {e}"))?;
    let mut say = |line: Line| -> Try {
        let text = serde_json::to_string(&line).map_err(|error| error.to_string())? + "\n";
        port.write_all(text.as_bytes()).map_err(|error| format!("{PORT}: {error}"))
    };
    let why = look(world, wanted, &mut say).err().unwrap_or_default();
    say(Line::Over(why))?;
    Ok(ExitCode::SUCCESS)
}

fn look(world: &World, wanted: &[String], say: Say<'_>) -> Try {
    if !setup::is_up(world)? {
        setup::server(world)?;
        say(step("the server is up"))?;
    }
    if wanted.is_empty() {
        return Ok(());
    }
    start_instance(world, &format!("{}.tar", world.agent.name()), say)?;
    for check in checks::of(world.server).filter(|check| wanted.contains(&check.id())) {
        checks::ready(world).map_err(|why| format!("before {}: {why}", check.id()))?;
        say(Line::Begin(check.id()))?;
        let begun = Instant::now();
        let seen = (check.run)(world);
        // KVM stopped the VM: emulated virtualisation sometimes fails, which says nothing about the
        // agent.
        if seen.is_err() && world.status()? == "Error" {
            return Err(format!("the instance's QEMU met an internal error during {}", check.id()));
        }
        say(Line::End(check.id(), seen, round(begun.elapsed())))?;
    }
    Ok(())
}

/// Port on which the machine around the outer VM listens: virtio-serial.
pub const PORT: &str = "/dev/virtio-ports/mote.report";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Line {
    /// A step of the preparations, and seconds since the outer VM's start.
    Step(String, f64),
    Begin(String),
    /// The end of a check: its name, what it saw or why it fails, seconds.
    End(String, Try<String>, f64),
    /// No more lines follow, for this reason.
    Over(String),
}

pub type Say<'a> = &'a mut dyn FnMut(Line) -> Try;

pub fn step(text: &str) -> Line {
    Line::Step(text.to_owned(), uptime())
}

fn uptime() -> f64 {
    let text = fs::read_to_string("/proc/uptime").unwrap_or_default();
    text.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or_default()
}

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

fn start_instance(world: &World, image: &str, say: Say<'_>) -> Try {
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
