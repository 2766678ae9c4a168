//! State and metrics that the server reports, based on its agent.

use super::life::report_ready;
use crate::prelude::*;

group! {
    "state":
    agent_is_seen, fields, info, list, templates, metrics, wait [is_incus_7]
}

fn agent_is_seen(world: &World) -> Seen {
    Ok(format!("after {} s", world.agent_of(VM)?))
}

fn fields(world: &World) -> Seen {
    let state = world.query(&format!("/1.0/instances/{VM}/state"))?;
    let paths = "/memory/usage /memory/total /cpu/usage /pid /processes /network/lo/addresses \
        /network/eth0/hwaddr /network/eth0/host_name";
    for path in paths.split(' ') {
        let field = state.pointer(path).unwrap_or(&Value::Null);
        // The server of LXD 5.0.2 reports no total.
        let missing = field.is_null() || field == 0 || field == "";
        if missing && !(path == "/memory/total" && world.server == Server::Lxd) {
            return Err(format!("{path} is {field} in {state}"));
        }
    }
    Ok(format!("{} processes, memory {}", state["processes"], state["memory"]["usage"]))
}

fn info(world: &World) -> Seen {
    let text = world.ok(&["info", VM])?;
    for wanted in ["Processes: ", "Memory (current): ", "lo:", "eth0:", "MTU: "] {
        has(&text, wanted)?;
    }
    if world.server.is_incus_7() {
        for wanted in ["OS: inner", "OS Version: 1", "Kernel Version: 6.", "Hostname: vm1"] {
            has(&text, wanted)?;
        }
    }
    line_with(&text, "Memory (current)")
}

fn list(world: &World) -> Seen {
    let list = || world.ok(&["list", VM, "-f", "csv", "-c", "nstNmMu4"]);
    let has_address = || Ok(list()?.contains("10.77.0."));
    let seen = world.until("an IPv4 address in the list", 40, has_address);
    let text = list()?;
    seen.map_err(|why| format!("{why}: {text}"))?;
    let processes = text.split(',').nth(3).unwrap_or_default();
    same("the processes are a number", processes.parse::<u64>().is_ok(), true)?;
    Ok(text.trim().to_owned())
}

fn templates(world: &World) -> Seen {
    same("/etc/hostname", world.sh("cat /etc/hostname")?.trim(), VM)?;
    same("the host name", world.sh("hostname")?.trim(), VM)?;
    let text = world.sh("cat /etc/from-template")?;
    same("a template", text.trim(), format!("instance {VM} made by the-image for hello"))?;
    Ok(text.trim().to_owned())
}

fn metrics(world: &World) -> Seen {
    let text = world.curl(&["http://x/1.0/metrics"]).text()?;
    let mine = format!("name=\"{VM}\"");
    let lines = text.lines().filter(|line| line.contains(&mine));
    let mut names: Vec<_> = lines.filter_map(|line| line.split('{').next()).collect();
    names.dedup();
    let wanted = "cpu_seconds_total memory_MemTotal_bytes memory_MemAvailable_bytes procs_total \
        network_receive_bytes_total filesystem_size_bytes";
    for wanted in wanted.split(' ') {
        let wanted = format!("{}_{wanted}", world.server.service());
        same(&wanted, names.contains(&wanted.as_str()), true)?;
    }
    Ok(format!("{} names", names.len()))
}

fn wait(world: &World) -> Seen {
    let wait = |condition| world.ok(&["wait", VM, condition, "--timeout", "60", "--interval", "1"]);
    for condition in ["agent", "ipv4", "status=running"] {
        wait(condition)?;
    }
    report_ready(world)?;
    wait("status=ready")?;
    Ok("agent, ipv4, status=running, then status=ready".into())
}
