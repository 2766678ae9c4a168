//! `mote-injected PID`: tries everything in the agent of this system, which is in its sandbox and
//! may serve port-forward. Prints unexpected results.

use std::process::ExitCode;

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("mote-injected: {error}");
            ExitCode::from(2)
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn run() -> Result<bool, Box<dyn std::error::Error>> {
    use mote_injected::{Around, Injected, Way};

    let process = std::env::args().nth(1).ok_or("usage: mote-injected PID")?.parse()?;
    let mut around = Around::new("/".as_ref(), Way::Vsock, &std::env::temp_dir())?;
    around.forwards = true;
    let injected = Injected::enter(process)?.ok_or("it takes CAP_SYS_PTRACE")?;
    let report = mote_injected::try_all(&injected, &around)?;
    drop(injected);
    println!("{} system calls", report.calls);
    for line in &report.wrong {
        println!("{line}");
    }
    Ok(report.wrong.is_empty() && around.other_lives())
}

#[cfg(not(target_arch = "x86_64"))]
fn run() -> Result<bool, Box<dyn std::error::Error>> {
    Err("for x86-64 only".into())
}
