//! What is wrong with a hello: the certificate.

use std::io;

pub(crate) fn is_other_certificate(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidData
}
