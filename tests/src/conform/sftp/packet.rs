//! Parts of SFTP packets: types, flags, codes and replies. Numbers, texts and attributes are read
//! and written by `mote-host`, which shares no code with the agent and which these claims check
//! against the Go agents.

use anyhow::{Result, bail};
use mote_client::files::sftp::wire::Reader;
pub use mote_client::files::sftp::wire::{Attrs, Writer as Body};

/// Packet types of requests.
pub mod kind {
    pub use mote_client::files::sftp::wire::kind::*;

    pub const RENAME: u8 = 18;
}

pub mod flag {
    pub const READ: u32 = 1;
    pub const WRITE: u32 = 2;
    pub const APPEND: u32 = 4;
    pub const CREATE: u32 = 8;
    pub const TRUNCATE: u32 = 16;
    pub const EXCLUSIVE: u32 = 32;
}

pub const OK: u32 = 0;
/// Status: end of a file or directory.
pub const EOF: u32 = 1;
/// Status: no such file.
pub const NO_FILE: u32 = 2;
pub const FAILURE: u32 = 4;
/// Status: request not supported.
pub const UNSUPPORTED: u32 = 8;

/// Returns a body that begins with a string.
pub fn of(text: impl AsRef<[u8]>) -> Body {
    Body::default().bytes(text)
}

/// Names, long names, attributes.
pub type Names = Vec<(Vec<u8>, Vec<u8>, Attrs)>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Status(u32),
    Handle(Vec<u8>),
    Data(Vec<u8>),
    Names(Names),
    Attrs(Attrs),
    /// Numbers of eight bytes in an extension's reply.
    Numbers(Vec<u64>),
}

impl Reply {
    /// Reads a reply's body after its id, and the message of a status. Nothing may follow.
    pub(super) fn read(kind: u8, reader: &mut Reader<'_>) -> Result<(Self, String)> {
        let mut why = String::new();
        let reply = match kind {
            kind::STATUS => {
                let status = reader.status()?;
                if !reader.0.is_empty() {
                    let _language = reader.text()?;
                }
                why = status.message;
                Self::Status(status.code)
            }
            kind::HANDLE => Self::Handle(reader.bytes()?.to_vec()),
            kind::DATA => Self::Data(reader.bytes()?.to_vec()),
            kind::NAME => {
                let mut names = Vec::new();
                for _ in 0..reader.u32()? {
                    let (name, long) = (reader.bytes()?.to_vec(), reader.bytes()?.to_vec());
                    names.push((name, long, reader.attrs()?));
                }
                Self::Names(names)
            }
            kind::ATTRS => Self::Attrs(reader.attrs()?),
            kind::EXTENDED_REPLY => {
                let count = reader.0.len() / 8;
                Self::Numbers((0..count).map(|_| reader.u64()).collect::<Result<_>>()?)
            }
            other => bail!("packet {other} is not a reply"),
        };
        reader.end()?;
        Ok((reply, why))
    }

    /// A short description for messages.
    pub fn short(&self) -> String {
        match self {
            Self::Status(code) => format!("status {code}"),
            Self::Handle(_) => "a handle".into(),
            Self::Data(data) => format!("{} bytes", data.len()),
            Self::Names(names) => format!("{} names", names.len()),
            Self::Attrs(_) => "attributes".into(),
            Self::Numbers(_) => "an extension's reply".into(),
        }
    }
}
