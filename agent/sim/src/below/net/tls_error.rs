//! Errors of a hello.

use std::{fmt, io};

#[derive(Debug)]
pub(crate) enum Unusable {
    File(&'static str),
    Tls(io::Error),
}

impl fmt::Display for Unusable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(name) => write!(out, "{name}: no certificate"),
            Self::Tls(why) => why.fmt(out),
        }
    }
}

impl From<io::Error> for Unusable {
    fn from(why: io::Error) -> Self {
        Self::Tls(why)
    }
}

pub(crate) fn is_other_certificate(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidData
}
