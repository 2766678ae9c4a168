//! The answer to `GET /1.0` on the host's side, and the envelope every host reply comes in.
//! Source: P§3.4 (fields the host uses), P§4 (envelope).

use core::fmt::{Result, Write};

use crate::flavour::Flavour;
use crate::json::quote;

/// What the shell knows of the machine it runs on (uname, pid).
#[derive(Clone, Copy, Debug)]
pub struct Machine<'a> {
    /// `uname -m`.
    pub architecture: &'a str,
    /// `uname -n`.
    pub hostname: &'a str,
    /// `uname -r`.
    pub release: &'a str,
    /// Our process.
    pub pid: u32,
}

/// Writes the metadata of `GET /1.0`. `environment.server` is what makes the host's client treat
/// us as an agent (P§3.4).
///
/// # Errors
/// Only those of `out`.
pub fn write_info(out: &mut impl Write, flavour: Flavour, machine: &Machine<'_>) -> Result {
    out.write_str(
        "{\"api_extensions\":[\"container_exec_user_group_cwd\"],\"api_status\":\"stable\",\
         \"api_version\":\"1.0\",\"auth\":\"trusted\",\"public\":false,\"auth_methods\":[\"tls\"],\
         \"client_certificate\":false,\"config\":null,\"auth_user_name\":\"\",\
         \"auth_user_method\":\"\",\"environment\":{\"kernel\":\"Linux\",\"kernel_architecture\":",
    )?;
    quote(out, machine.architecture)?;
    out.write_str(",\"kernel_version\":")?;
    quote(out, machine.release)?;
    out.write_str(",\"server\":")?;
    quote(out, flavour.server_name())?;
    write!(out, ",\"server_pid\":{},\"server_version\":", machine.pid)?;
    quote(out, env!("CARGO_PKG_VERSION"))?;
    out.write_str(",\"server_name\":")?;
    quote(out, machine.hostname)?;
    out.write_str("}}")
}

/// Writes a sync reply around `metadata`, which is JSON already.
///
/// # Errors
/// Only those of `out`.
pub fn write_sync(out: &mut impl Write, metadata: &str) -> Result {
    out.write_str(
        "{\"type\":\"sync\",\"status\":\"Success\",\"status_code\":200,\"operation\":\"\",\
         \"error_code\":0,\"error\":\"\",\"metadata\":",
    )?;
    out.write_str(metadata)?;
    out.write_str("}\n")
}

/// Writes an error reply; its HTTP status is `code`.
///
/// # Errors
/// Only those of `out`.
pub fn write_error(out: &mut impl Write, code: u16, text: &str) -> Result {
    write!(
        out,
        "{{\"type\":\"error\",\"status\":\"\",\"status_code\":0,\"operation\":\"\",\
         \"error_code\":{code},\"error\":"
    )?;
    quote(out, text)?;
    out.write_str(",\"metadata\":null}\n")
}
